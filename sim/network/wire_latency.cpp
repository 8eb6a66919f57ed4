#include "sim/network/wire_latency.h"

#include <algorithm>
#include <limits>

namespace longhaul {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();  // below every latency

}  // namespace

WireLatency::WireLatency(const Cluster& cluster) : cluster_(&cluster) {
  const bool pairs = cluster.topology().node_fabric == NodeFabric::kPairs;
  const Time nvlink = Time::from_us(kFittedNvLinkUs / (pairs ? 1 : 2));  // a switch is crossed over two links
  const Time nic = Time::from_us(kFittedNetworkUs / 2);                  // out of one NIC, into another
  std::vector<double> of_class(cluster.link_classes().size(), kNever);
  extra_us_.reserve(cluster.links().size());
  for (const Link& link : cluster.links()) {
    const std::string& kind = cluster.link_classes()[link.link_class].name;
    const Time fitted = kind == "nvlink" ? nvlink : kind == "nic" ? nic : Time::zero();
    extra_us_.push_back((link.latency - fitted).us());
    none_ &= extra_us_.back() == 0;
    double& first = of_class[link.link_class];
    if (first == kNever) first = extra_us_.back();
    by_class_ &= first == extra_us_.back();
  }
}

double WireLatency::message(int from, int to) const {
  if (none_) return 0;
  const Route route = cluster_->route(from, to);
  return along({route.data(), route.size()});
}

double WireLatency::along(std::span<const LinkId> links) const {
  double us = 0;
  for (const LinkId link : links) us += extra_us_[static_cast<std::size_t>(link)];
  return us;
}

double WireLatency::ring(const CommGroup& group, int rounds) const {
  if (none_ || group.ranks == 1) return 0;
  const std::size_t domains = group.domains.size();
  double longest = kNever;
  for (std::size_t channel = 0; channel < static_cast<std::size_t>(group.largest); ++channel) {
    double sum = 0;
    double least = -kNever;  // of the hops where the ring closes: between domains if there are several
    for (std::size_t domain = 0; domain < domains; ++domain) {
      const std::size_t count = group.domains[domain].size();
      const std::size_t hops = domains == 1 ? count : count - 1;
      for (std::size_t i = 0; i < hops; ++i) {
        const double us = message(group.member(domain, channel + i), group.member(domain, channel + i + 1));
        sum += us;
        if (domains == 1) least = std::min(least, us);
      }
      if (domains == 1) continue;
      const double us = message(group.member(domain, channel), group.member((domain + 1) % domains, channel));
      sum += us;
      least = std::min(least, us);
    }
    longest = std::max(longest, sum - least);
  }
  return rounds * longest;
}

double WireLatency::tree_of(const CommGroup& group, std::size_t channel, bool chains) const {
  const int domains = static_cast<int>(group.domains.size());
  const auto head = [&](int domain) { return group.member(static_cast<std::size_t>(domain), channel); };
  double longest = kNever;
  for (int (*const parent)(int, int) : {tree_parent, second_tree_parent}) {
    double up = kNever;
    double down = kNever;
    for (int domain = 0; domain < domains; ++domain) {
      double to_root = 0;
      double from_root = 0;
      const std::size_t count = chains ? group.domains[static_cast<std::size_t>(domain)].size() : 1;
      for (std::size_t i = 1; i < count; ++i) {
        const int near = group.member(static_cast<std::size_t>(domain), channel + i - 1);
        const int far = group.member(static_cast<std::size_t>(domain), channel + i);
        to_root += message(far, near);
        from_root += message(near, far);
      }
      for (int child = domain; parent(child, domains) >= 0; child = parent(child, domains)) {
        to_root += message(head(child), head(parent(child, domains)));
        from_root += message(head(parent(child, domains)), head(child));
      }
      up = std::max(up, to_root);
      down = std::max(down, from_root);
    }
    longest = std::max(longest, up + down);
  }
  return longest;
}

double WireLatency::tree(const CommGroup& group) const {
  if (none_) return 0;
  double longest = kNever;
  for (int channel = 0; channel < group.largest; ++channel) {
    longest = std::max(longest, tree_of(group, static_cast<std::size_t>(channel), true));
  }
  return longest;
}

double WireLatency::tree_between(const CommGroup& group) const {
  if (none_) return 0;
  double longest = kNever;
  for (int channel = 0; channel < group.smallest; ++channel) {
    longest = std::max(longest, tree_of(group, static_cast<std::size_t>(channel), false));
  }
  return longest;
}

double WireLatency::inside(const CommGroup& group, int trips) const {
  if (none_ || group.largest == 1) return 0;
  double longest = kNever;
  for (const std::vector<int>& members : group.domains) {
    for (const int from : members) {
      for (const int to : members) {
        if (from != to) longest = std::max(longest, message(from, to));
      }
    }
  }
  return trips * longest;
}

double WireLatency::sharp_between(const CommGroup& group) const {
  if (none_) return 0;
  double longest = kNever;
  for (int channel = 0; channel < group.smallest; ++channel) {
    double up = kNever;
    double down = kNever;
    const int root = group.member(0, static_cast<std::size_t>(channel));
    for (std::size_t domain = 1; domain < group.domains.size(); ++domain) {
      const int head = group.member(domain, static_cast<std::size_t>(channel));
      up = std::max(up, message(head, root));
      down = std::max(down, message(root, head));
    }
    longest = std::max(longest, (up + down) / 2);  // the root of SHARP's tree is a switch half way
  }
  return longest;
}

double WireLatency::pat(const CommGroup& group) const {
  if (none_) return 0;
  double sum = 0;
  const int count = group.ranks;
  for (int distance = 1; distance < count; distance *= 2) {
    double longest = kNever;
    for (int i = 0; i < count; ++i) {
      longest = std::max(longest, message(group.domains[static_cast<std::size_t>(i)][0],
                                          group.domains[static_cast<std::size_t>((i + distance) % count)][0]));
    }
    sum += longest;
  }
  return sum;
}

}  // namespace longhaul
