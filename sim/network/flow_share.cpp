#include "sim/network/flow_share.h"

#include <algorithm>
#include <cmath>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Two rates this close are one: a re-solve may round differently without any cause to change a rate.
constexpr double kSameRate = 1e-12;
// Rounding allowed in the load of a link, of its bandwidth.
constexpr double kLoadSlack = 1e-9;

}  // namespace

FlowShare::FlowShare(const Cluster& cluster)
    : cluster_(&cluster),
      head_(cluster.links().size()),
      peak_(cluster.links().size()),
      residual_(cluster.links().size()),
      link_visited_(cluster.links().size()) {
  inverse_bandwidth_.reserve(cluster.links().size());
  for (const Link& link : cluster.links()) inverse_bandwidth_.push_back(1 / link.bandwidth.value);
}

FlowShare::BundleId FlowShare::find(const Transfer& transfer, double slowdown) {
  for (Place place = head_[static_cast<std::size_t>(transfer.loads.front().link)]; !place.none();
       place = at(place).next) {
    const Bundle& bundle = at(place.bundle);
    if (bundle.transfer == &transfer && bundle.slowdown == slowdown) return place.bundle;
  }
  return -1;
}

FlowShare::BundleId FlowShare::add(const Transfer& transfer, double slowdown) {
  LH_ASSERT(!transfer.loads.empty() && transfer.byte_seconds > 0, "a byte phase without bytes");
  LH_ASSERT(slowdown >= 1, "a transfer slowed by {}", slowdown);
  BundleId id = find(transfer, slowdown);
  if (id < 0) id = create(transfer, slowdown);
  ++at(id).flows;
  touch(id);
  return id;
}

FlowShare::BundleId FlowShare::create(const Transfer& transfer, double slowdown) {
  BundleId id = static_cast<BundleId>(bundles_.size());
  if (free_.empty()) {
    bundles_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Bundle& bundle = at(id);
  double longest = 0;
  std::int64_t reference = 0;
  for (const LinkLoad& load : transfer.loads) {
    LH_ASSERT(load.bytes > 0, "{} bytes on link {}", load.bytes, load.link);
    const double seconds = static_cast<double>(load.bytes) * inverse_bandwidth_[static_cast<std::size_t>(load.link)];
    if (seconds > longest) {
      longest = seconds;
      reference = load.bytes;
    }
  }
  bundle.transfer = &transfer;
  bundle.reference = static_cast<double>(reference);
  bundle.slowdown = slowdown;
  bundle.limit = bundle.reference / (transfer.byte_seconds * slowdown);
  bundle.tightest = longest / bundle.reference;
  LH_ASSERT(transfer.byte_seconds >= longest * (1 - kLoadSlack), "a transfer faster than its links: {} s under {} s",
            transfer.byte_seconds, longest);
  bundle.rate = 0;
  bundle.peak_total = 0;
  bundle.shared_links = 0;
  bundle.entries.resize(transfer.loads.size());
  const double inverse = 1 / bundle.reference;
  for (std::size_t i = 0; i < transfer.loads.size(); ++i) {
    const LinkLoad& load = transfer.loads[i];
    const double weight = load.bytes == reference ? 1 : static_cast<double>(load.bytes) * inverse;
    bundle.entries[i] = {load.link, weight, {}, {}};
    link_in({id, static_cast<std::int32_t>(i)});
  }
  return id;
}

void FlowShare::link_in(Place place) {
  Entry& entry = at(place);
  Place& head = head_[static_cast<std::size_t>(entry.link)];
  entry.next = head;
  if (!head.none()) {
    Entry& other = at(head);
    other.previous = place;
    ++at(place.bundle).shared_links;
    if (other.next.none()) ++at(head.bundle).shared_links;
  }
  head = place;
}

void FlowShare::unlink(Place place) {
  const Entry entry = at(place);
  Place& head = head_[static_cast<std::size_t>(entry.link)];
  (entry.previous.none() ? head : at(entry.previous).next) = entry.next;
  if (!entry.next.none()) at(entry.next).previous = entry.previous;
  if (head.none()) return;
  touch(head.bundle);
  if (at(head).next.none()) --at(head.bundle).shared_links;
}

void FlowShare::remove(BundleId id) {
  Bundle& bundle = at(id);
  if (--bundle.flows > 0) return touch(id);
  if (bundle.shared_links == 0) {
    for (const Entry& entry : bundle.entries) head_[static_cast<std::size_t>(entry.link)] = {};
  } else {
    for (std::size_t i = 0; i < bundle.entries.size(); ++i) unlink({id, static_cast<std::int32_t>(i)});
  }
  bundle.transfer = nullptr;
  free_.push_back(id);
}

const std::vector<FlowShare::BundleRate>& FlowShare::solve() {
  rates_.clear();
  ++visit_;
  for (const BundleId seed : touched_) {
    if (at(seed).flows == 0 || at(seed).visited == visit_) continue;
    if (at(seed).shared_links == 0) {
      solve_alone(seed);
      continue;
    }
    gather(seed);
    fill();
    check_loads();
  }
  touched_.clear();
  return rates_;
}

void FlowShare::solve_alone(BundleId id) {
  Bundle& bundle = at(id);
  bundle.visited = visit_;
  const double fair = 1 / (bundle.tightest * bundle.flows);
  const double rate = fair >= bundle.limit * (1 - kSameRate) ? bundle.limit : fair;
  const double total = rate * bundle.flows;
  if (total > bundle.peak_total) {
    bundle.peak_total = total;
    solved_entries_ += static_cast<std::int64_t>(bundle.entries.size());
    for (const Entry& entry : bundle.entries) {
      const auto link = static_cast<std::size_t>(entry.link);
      peak_[link] = std::max(peak_[link], std::min(1.0, total * entry.weight * inverse_bandwidth_[link]));
    }
  }
  LH_ASSERT(total * bundle.tightest <= 1 + kLoadSlack, "a link loaded to {} of its bandwidth", total * bundle.tightest);
  report(id, rate);
}

// All bundles and links that are joined to the seed.
void FlowShare::gather(BundleId seed) {
  component_.assign(1, seed);
  component_links_.clear();
  at(seed).visited = visit_;
  for (std::size_t i = 0; i < component_.size(); ++i) {
    at(component_[i]).frozen = false;
    for (const Entry& entry : at(component_[i]).entries) {
      std::uint64_t& seen = link_visited_[static_cast<std::size_t>(entry.link)];
      if (seen == visit_) continue;
      seen = visit_;
      component_links_.push_back(entry.link);
      for (Place place = head_[static_cast<std::size_t>(entry.link)]; !place.none(); place = at(place).next) {
        if (at(place.bundle).visited == visit_) continue;
        at(place.bundle).visited = visit_;
        component_.push_back(place.bundle);
      }
    }
  }
}

double FlowShare::level_of(LinkId link) {
  double weight = 0;
  for (Place place = head_[static_cast<std::size_t>(link)]; !place.none(); place = at(place).next) {
    const Bundle& bundle = at(place.bundle);
    if (!bundle.frozen) weight += bundle.flows * at(place).weight;
  }
  if (weight == 0) return -1;
  return std::max(0.0, residual_[static_cast<std::size_t>(link)]) / weight;
}

// Water-filling. The level of a link only rises while others freeze below it, so an outdated heap entry is too low and
// is put back with its present level.
void FlowShare::fill() {
  const auto later = [](const Level& a, const Level& b) { return a.rate != b.rate ? a.rate > b.rate : a.id > b.id; };
  levels_.clear();
  for (const LinkId link : component_links_) {
    residual_[static_cast<std::size_t>(link)] = cluster_->links()[static_cast<std::size_t>(link)].bandwidth.value;
    // One flow alone on a link is held by its own limit, which no link of it allows it to pass.
    const Place head = head_[static_cast<std::size_t>(link)];
    if (at(head).next.none() && at(head.bundle).flows == 1) continue;
    levels_.push_back({level_of(link), link});
  }
  for (const BundleId id : component_) levels_.push_back({at(id).limit, -1 - id});
  std::make_heap(levels_.begin(), levels_.end(), later);
  unfrozen_ = component_.size();
  while (unfrozen_ > 0) {
    LH_ASSERT(!levels_.empty(), "{} transfers without a rate", unfrozen_);
    std::pop_heap(levels_.begin(), levels_.end(), later);
    const Level level = levels_.back();
    levels_.pop_back();
    if (level.id < 0) {
      if (!at(-1 - level.id).frozen) freeze(-1 - level.id, level.rate);
      continue;
    }
    const double now = level_of(level.id);
    if (now < 0) continue;
    if (now > level.rate * (1 + kSameRate)) {
      levels_.push_back({now, level.id});
      std::push_heap(levels_.begin(), levels_.end(), later);
    } else {
      freeze_link(level.id, now);
    }
  }
}

void FlowShare::freeze_link(LinkId link, double rate) {
  for (Place place = head_[static_cast<std::size_t>(link)]; !place.none(); place = at(place).next) {
    if (!at(place.bundle).frozen) freeze(place.bundle, rate);
  }
}

void FlowShare::freeze(BundleId id, double rate) {
  Bundle& bundle = at(id);
  bundle.frozen = true;
  --unfrozen_;
  if (rate >= bundle.limit * (1 - kSameRate)) rate = bundle.limit;
  solved_entries_ += static_cast<std::int64_t>(bundle.entries.size());
  const double total = rate * bundle.flows;
  for (const Entry& entry : bundle.entries) residual_[static_cast<std::size_t>(entry.link)] -= total * entry.weight;
  report(id, rate);
}

void FlowShare::report(BundleId id, double rate) {
  Bundle& bundle = at(id);
  LH_ASSERT(rate > 0, "a transfer stands still");
  if (std::abs(rate - bundle.rate) <= kSameRate * bundle.rate) rate = bundle.rate;
  bundle.rate = rate;
  rates_.push_back({id, rate});
}

void FlowShare::check_loads() {
  for (const LinkId id : component_links_) {
    const auto link = static_cast<std::size_t>(id);
    const double used = 1 - residual_[link] * inverse_bandwidth_[link];
    LH_ASSERT(used <= 1 + kLoadSlack, "link {} loaded to {} of its bandwidth", cluster_->links()[link].name, used);
    peak_[link] = std::max(peak_[link], std::min(1.0, used));
  }
}

}  // namespace longhaul
