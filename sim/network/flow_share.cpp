#include "sim/network/flow_share.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Two rates this close are one: solving again may round differently without any cause to change a rate.
constexpr double kSameRate = 1e-12;
// Changes of a level that are not carried further, of the level.
constexpr double kSameLevel = 1e-13;
// Rounding of a sum of loads, of the capacity.
constexpr double kRounding = 1e-15;
// Rounding allowed in the load of a link, of its bandwidth.
constexpr double kLoadSlack = 1e-9;

}  // namespace

FlowShare::FlowShare(const Cluster& cluster, double eps)
    : eps_(eps),
      occupant_(cluster.links().size()),
      links_(cluster.links().size()),
      queued_(cluster.links().size()),
      peak_(cluster.links().size()) {
  LH_ASSERT(eps >= 0 && eps < 1, "an eps of {}", eps);
  for (const Link& link : cluster.links()) inverse_capacity_.push_back(1 / link.bandwidth.value);
  for (std::size_t id = 0; id < links_.size(); ++id) links_[id].capacity = cluster.links()[id].bandwidth.value;
}

FlowShare::BundleId FlowShare::find(const Transfer& transfer, double slowdown) {
  const auto same = [&](BundleId id) { return terms(id).transfer == &transfer && terms(id).slowdown == slowdown; };
  const LinkState* fewest = nullptr;
  for (const LinkLoad& load : transfer.loads) {
    const BundleId only = occupant_[static_cast<std::size_t>(load.link)].bundle;
    if (only != kSeveral) return only != kNobody && same(only) ? only : -1;
    if (fewest == nullptr || link(load.link).slots.size() < fewest->slots.size()) fewest = &link(load.link);
  }
  for (const Slot& slot : fewest->slots) {
    if (same(slot.bundle)) return slot.bundle;
  }
  return -1;
}

FlowShare::BundleId FlowShare::add(const Transfer& transfer, double slowdown) {
  LH_ASSERT(!transfer.loads.empty() && transfer.byte_seconds > 0, "a byte phase without bytes");
  LH_ASSERT(slowdown >= 1, "a transfer slowed by {}", slowdown);
  BundleId id = find(transfer, slowdown);
  if (id < 0) id = create(transfer, slowdown);
  change_flows(id, 1);
  return id;
}

FlowShare::BundleId FlowShare::create(const Transfer& transfer, double slowdown) {
  BundleId id = static_cast<BundleId>(bundles_.size());
  if (free_.empty()) {
    bundles_.emplace_back();
    terms_.emplace_back();
    touched_.push_back(0);
  } else {
    id = free_.back();
    free_.pop_back();
  }
  terms(id) = {&transfer, slowdown};
  measure(id);
  Bundle& bundle = at(id);
  bundle.level = bundle.reported = 0;
  bundle.weight = transfer.weight;
  bundle.flows = bundle.shared_links = 0;
  bundle.entries.resize(transfer.loads.size());
  const double reference = terms(id).reference;
  const double inverse = 1 / reference;
  for (std::size_t i = 0; i < transfer.loads.size(); ++i) {
    const auto bytes = static_cast<double>(transfer.loads[i].bytes);
    const double weight = bytes == reference ? 1 : bytes * inverse;
    bundle.entries[i] = {transfer.loads[i].link, 0, weight * bundle.weight};
    link_in(id, static_cast<std::int32_t>(i));
  }
  return id;
}

// What does not depend on others.
void FlowShare::measure(BundleId id) {
  Terms& terms = this->terms(id);
  const Transfer& transfer = *terms.transfer;
  double longest = 0;
  std::int64_t reference = 0;
  for (const LinkLoad& load : transfer.loads) {
    LH_ASSERT(load.bytes > 0, "{} bytes on link {}", load.bytes, load.link);
    const double seconds = static_cast<double>(load.bytes) * inverse_capacity_[static_cast<std::size_t>(load.link)];
    if (seconds > longest) {
      longest = seconds;
      reference = load.bytes;
    }
  }
  LH_ASSERT(transfer.weight > 0, "a transfer of weight {}", transfer.weight);
  LH_ASSERT(transfer.byte_seconds >= longest * (1 - kLoadSlack), "a transfer faster than its links: {} s under {} s",
            transfer.byte_seconds, longest);
  terms.reference = static_cast<double>(reference);
  terms.limit_level = terms.reference / (transfer.byte_seconds * terms.slowdown) / transfer.weight;
  terms.limit = terms.limit_level * transfer.weight;
  terms.tightest = longest / terms.reference * transfer.weight;
}

void FlowShare::link_in(BundleId id, std::int32_t index) {
  Entry& entry = at(id).entries[static_cast<std::size_t>(index)];
  Occupant& occupant = occupant_[static_cast<std::size_t>(entry.link)];
  if (occupant.bundle == kNobody) {
    occupant = {id, index};
    return;
  }
  LinkState& on = link(entry.link);
  if (occupant.bundle != kSeveral) {
    Bundle& other = at(occupant.bundle);
    Entry& its = other.entries[static_cast<std::size_t>(occupant.entry)];
    ++other.shared_links;
    its.slot = 0;
    on.slots.assign(1, {occupant.bundle, occupant.entry, its.weight});
    on.weight = other.flows * its.weight;
    on.load = other.level * on.weight;
    on.level = kNoLevel;
    on.bound = 0;
    occupant.bundle = kSeveral;
  }
  ++at(id).shared_links;
  entry.slot = static_cast<std::int32_t>(on.slots.size());
  on.slots.push_back({id, index, entry.weight});
}

void FlowShare::unlink(const Entry& entry) {
  Occupant& occupant = occupant_[static_cast<std::size_t>(entry.link)];
  if (occupant.bundle != kSeveral) {
    occupant.bundle = kNobody;
    return;
  }
  LinkState& on = link(entry.link);
  const Slot last = on.slots.back();
  on.slots.pop_back();
  if (static_cast<std::size_t>(entry.slot) < on.slots.size()) {
    on.slots[static_cast<std::size_t>(entry.slot)] = last;
    at(last.bundle).entries[static_cast<std::size_t>(last.entry)].slot = entry.slot;
  }
  if (on.slots.size() > 1) return;
  occupant = {on.slots.front().bundle, on.slots.front().entry};
  --at(occupant.bundle).shared_links;
  if (on.level < kNoLevel) touch(occupant.bundle, true);
}

void FlowShare::remove(BundleId id) {
  change_flows(id, -1);
  Bundle& bundle = at(id);
  if (bundle.flows > 0) return;
  if (bundle.shared_links == 0) {
    for (const Entry& entry : bundle.entries) occupant_[static_cast<std::size_t>(entry.link)].bundle = kNobody;
  } else {
    for (const Entry& entry : bundle.entries) unlink(entry);
  }
  terms(id).transfer = nullptr;
  free_.push_back(id);
}

void FlowShare::touch(BundleId id, bool raised) {
  std::uint8_t& touched = touched_[static_cast<std::size_t>(id)];
  if (touched == 0) changed_.push_back(id);
  touched |= raised ? kChanged | kRaised : kChanged;
}

void FlowShare::change_flows(BundleId id, int change) {
  Bundle& bundle = at(id);
  touch(id, change > 0);
  bundle.flows += change;
  const double total = terms(id).tightest * std::max(1, bundle.flows);
  const double limit = terms(id).limit_level;
  bundle.cap = limit * total <= 1 + kSameRate ? limit : 1 / total;
  if (bundle.shared_links == 0) return;
  for (const Entry& entry : bundle.entries) {
    if (!shared(entry.link)) continue;
    LinkState& on = link(entry.link);
    const double weight = change * entry.weight;
    on.weight += weight;
    on.load += weight * bundle.level;
    if (bundle.level >= on.level) on.bound += weight;
    check(entry.link);
  }
}

// The least of the cap and of the levels of the links, one excepted.
double FlowShare::level_without(const Bundle& bundle, LinkId except) {
  double level = bundle.cap;
  if (bundle.shared_links == 0) return level;
  solved_entries_ += static_cast<std::int64_t>(bundle.entries.size());
  for (const Entry& entry : bundle.entries) {
    if (entry.link != except && shared(entry.link)) level = std::min(level, link(entry.link).level);
  }
  return level;
}

// Carries a new level of a bundle to its links but one.
void FlowShare::set_level(BundleId id, double level, LinkId except) {
  Bundle& bundle = at(id);
  if (level == bundle.level) return;
  touch(id, level > bundle.level);
  const double before = bundle.level;
  bundle.level = level;
  if (bundle.shared_links == 0) return;
  solved_entries_ += static_cast<std::int64_t>(bundle.entries.size());
  for (const Entry& entry : bundle.entries) {
    if (entry.link == except || !shared(entry.link)) continue;
    LinkState& on = link(entry.link);
    const double weight = bundle.flows * entry.weight;
    on.load += weight * (level - before);
    if (before >= on.level) on.bound -= weight;
    if (level >= on.level) on.bound += weight;
    check(entry.link);
  }
}

// The rule of links, by load alone.
bool FlowShare::holds(const LinkState& on) const {
  const double spare = on.capacity - on.load;
  return on.level < kNoLevel ? spare >= 0 && spare <= eps_ * on.level * on.bound : spare >= -kRounding * on.capacity;
}

// Queues a link that breaks its rule.
void FlowShare::check(LinkId id) {
  const LinkState& on = link(id);
  if (queued_[static_cast<std::size_t>(id)] != 0 || holds(on)) return;
  queued_[static_cast<std::size_t>(id)] = 1;
  dirty_.push_back({on.level < kNoLevel ? on.level : on.capacity / on.weight, id});
  std::push_heap(dirty_.begin(), dirty_.end(), [](const Dirty& a, const Dirty& b) {
    return a.level != b.level ? a.level > b.level : a.link > b.link;
  });
}

// The level at which the candidates fill the link, and the weight of those at it; none if they cannot.
double FlowShare::solve_level(const LinkState& on, double& bound) {
  double total = 0;
  double all = 0;
  for (const Candidate& candidate : candidates_) {
    total += candidate.weight * candidate.level;
    all += candidate.weight;
  }
  bound = 0;
  if (total <= on.capacity * (1 + kRounding)) return kNoLevel;
  const double lowest = on.capacity / all;
  double level = on.level < kNoLevel ? on.level : lowest;
  // The tangent of a concave function meets the capacity at or below the answer: from the second step on levels rise.
  for (bool first = true;; first = false) {
    double rest = on.capacity;
    bound = 0;
    for (const Candidate& candidate : candidates_) {
      if (candidate.level > level) {
        bound += candidate.weight;
      } else {
        rest -= candidate.weight * candidate.level;
      }
    }
    const bool below = bound > 0 && rest > 0;
    const double next = below ? rest / bound : lowest;
    if (!first && next <= level) return level;
    level = next;
  }
}

void FlowShare::relax(LinkId id) {
  LinkState& on = link(id);
  candidates_.clear();
  solved_entries_ += static_cast<std::int64_t>(on.slots.size());
  for (const Slot& slot : on.slots) __builtin_prefetch(&at(slot.bundle));
  double load = 0;
  for (const Slot& slot : on.slots) {
    const Bundle& bundle = at(slot.bundle);
    const double level = bundle.level < on.level ? bundle.level : level_without(bundle, id);
    const double weight = slot.weight * bundle.flows;
    candidates_.push_back({level, weight, slot.bundle});
    load += weight * bundle.level;
  }
  double bound = 0;
  const double level = solve_level(on, bound);
  const double change = std::abs(level - on.level);  // infinite when one of them is
  on.bound = bound;
  if (change <= kSameLevel * std::min(level, on.level) || change * bound <= kRounding * on.capacity) {
    on.load = load;
    return;
  }
  on.level = level;
  on.load = 0;
  for (const Candidate& candidate : candidates_) {
    double now = std::min(candidate.level, level);
    const double cap = at(candidate.bundle).cap;
    if (now >= cap * (1 - kSameRate)) now = cap;
    on.load += candidate.weight * now;
    set_level(candidate.bundle, now, id);
  }
}

const std::vector<FlowShare::BundleRate>& FlowShare::solve() {
  const auto later = [](const Dirty& a, const Dirty& b) {
    return a.level != b.level ? a.level > b.level : a.link > b.link;
  };
  rates_.clear();
  const std::size_t touched = changed_.size();
  for (std::size_t i = 0; i < touched; ++i) {
    if (at(changed_[i]).flows > 0) set_level(changed_[i], level_without(at(changed_[i]), -1), -1);
  }
  while (!dirty_.empty()) {
    std::pop_heap(dirty_.begin(), dirty_.end(), later);
    const LinkId id = dirty_.back().link;
    dirty_.pop_back();
    queued_[static_cast<std::size_t>(id)] = 0;
    if (shared(id) && !holds(link(id))) relax(id);  // both may have changed since it was queued
  }
  for (const BundleId id : changed_) report(id);
  changed_.clear();
  return rates_;
}

void FlowShare::report(BundleId id) {
  Bundle& bundle = at(id);
  const std::uint8_t touched = std::exchange(touched_[static_cast<std::size_t>(id)], std::uint8_t{0});
  if (bundle.flows == 0) return;
  LH_ASSERT(bundle.level > 0, "a transfer stands still");
  if ((touched & kRaised) != 0) count_peaks(id);
  if (std::abs(bundle.level - bundle.reported) > kSameRate * bundle.reported) bundle.reported = bundle.level;
  rates_.push_back({id, bundle.reported * bundle.weight});
}

// The loads of links on which a bundle has been raised.
void FlowShare::count_peaks(BundleId id) {
  const Bundle& bundle = at(id);
  const double total = bundle.level * bundle.flows;
  if (bundle.shared_links == 0) {
    LH_ASSERT(total * terms(id).tightest <= 1 + kLoadSlack, "a link loaded to {} of its bandwidth",
              total * terms(id).tightest);
    if (total <= terms(id).peak_total) return;
    terms(id).peak_total = total;
  }
  solved_entries_ += static_cast<std::int64_t>(bundle.entries.size());
  for (const Entry& entry : bundle.entries) {
    const auto on = static_cast<std::size_t>(entry.link);
    const double used = (shared(entry.link) ? links_[on].load : total * entry.weight) * inverse_capacity_[on];
    LH_ASSERT(used <= 1 + kLoadSlack, "link {} loaded to {} of its bandwidth", entry.link, used);
    peak_[on] = std::max(peak_[on], std::min(1.0, used));
  }
}

}  // namespace longhaul
