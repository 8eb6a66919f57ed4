#include "sim/network/all_pairs.h"

#include <algorithm>
#include <limits>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

bool of_source(const PartLink& link) {
  return link.owner == LinkOwner::kSourceNode || link.owner == LinkOwner::kSourceLeaf ||
         link.owner == LinkOwner::kSourcePod;
}

constexpr PairPattern kSameNode{NodeRelation::kSameNode, true};
// All patterns of two different nodes.
constexpr PairPattern kBetween[] = {
    {NodeRelation::kSameLeaf, true}, {NodeRelation::kSameLeaf, false}, {NodeRelation::kSamePod, true},
    {NodeRelation::kSamePod, false}, {NodeRelation::kOtherPod, true},  {NodeRelation::kOtherPod, false},
};

}  // namespace

AllPairs::AllPairs(const Cluster& cluster, std::span<const int> ranks)
    : cluster_(&cluster), ranks_(ranks.begin(), ranks.end()) {
  LH_ASSERT(cluster.routes_by_pattern() && !ranks_.empty(), "all pairs of {} ranks of {}", ranks.size(),
            cluster.topology().name);
  std::sort(ranks_.begin(), ranks_.end());
  LH_ASSERT(ranks_.front() >= 0 && ranks_.back() < cluster.gpus(), "ranks {} to {} of {} in a group", ranks_.front(),
            ranks_.back(), cluster.gpus());
  int last_domain = -1;
  for (const int rank : ranks_) {
    const int domain = cluster.domain_of(rank);
    if (domain != last_domain) members_of_domain_.push_back(0);
    last_domain = domain;
    ++members_of_domain_.back();
  }
  add_nodes();
}

int AllPairs::largest_domain() const { return *std::max_element(members_of_domain_.begin(), members_of_domain_.end()); }

int AllPairs::smallest_domain() const {
  return *std::min_element(members_of_domain_.begin(), members_of_domain_.end());
}

// Leaves, pods and domains are ranges of nodes, so a group is one too.
void AllPairs::add_nodes() {
  const FabricLayout& fabric = cluster_->fabric_layout();
  const int domain_nodes = cluster_->gpus_per_domain() / cluster_->gpus_per_node();
  const auto together = [&](int one, int other) {
    const bool near = domain_nodes == 1 || one / domain_nodes == other / domain_nodes;
    return near && fabric.leaf_of(one) == fabric.leaf_of(other) && fabric.pod_of(one) == fabric.pod_of(other);
  };
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const int node = cluster_->node_of(ranks_[i]);
    if (nodes_.empty() || nodes_.back().node != node) {
      if (groups_.empty() || !together(groups_.back().node, node)) {
        groups_.push_back({node, 0, std::vector<int>(static_cast<std::size_t>(cluster_->gpus_per_node()))});
      }
      ++groups_.back().nodes;
      nodes_.push_back({node, static_cast<int>(i), 0, static_cast<int>(groups_.size()) - 1});
    }
    ++nodes_.back().count;
    ++groups_.back().at[static_cast<std::size_t>(cluster_->local_of(ranks_[i]))];
  }
}

// Members by pattern to the group's nodes and place in a node; those of the group itself are left out.
std::vector<int> AllPairs::counts_of(std::size_t group) const {
  const auto width = static_cast<std::size_t>(cluster_->gpus_per_node());
  std::vector<int> counts(PairPattern::kCount * width);
  for (std::size_t other = 0; other < groups_.size(); ++other) {
    if (other == group) continue;
    const PairPattern pattern = cluster_->pattern_of(groups_[group].node, groups_[other].node);
    for (std::size_t at = 0; at < width; ++at) {
      counts[static_cast<std::size_t>(pattern.id()) * width + at] += groups_[other].at[at];
    }
  }
  return counts;
}

// visit(node, pattern, local, peer, count): GPU `local` of `node` is a member, and so are GPU `peer` of `count` nodes
// that stand in `pattern` to it.
template <typename Visit>
void AllPairs::for_each_place(const Visit& visit) const {
  const int width = cluster_->gpus_per_node();
  std::vector<int> counts;
  std::vector<int> own(static_cast<std::size_t>(width));  // members of the node by place
  int group = -1;
  int inside = -1;  // pattern of two nodes of the group
  for (const Node& node : nodes_) {
    if (node.group != group) {
      group = node.group;
      counts = counts_of(static_cast<std::size_t>(group));
      const Group& of = groups_[static_cast<std::size_t>(group)];
      inside = of.nodes > 1 ? cluster_->pattern_of(of.node, (&node)[1].node).id() : -1;
    }
    const Group& of = groups_[static_cast<std::size_t>(group)];
    const auto members =
        std::span(ranks_).subspan(static_cast<std::size_t>(node.first), static_cast<std::size_t>(node.count));
    std::fill(own.begin(), own.end(), 0);
    for (const int rank : members) own[static_cast<std::size_t>(cluster_->local_of(rank))] = 1;
    for (const int rank : members) {
      const int local = cluster_->local_of(rank);
      for (int peer = 0; peer < width; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        if (peer != local && own[at] > 0) visit(node.node, kSameNode, local, peer, 1);
        for (const PairPattern pattern : kBetween) {
          int count = counts[static_cast<std::size_t>(pattern.id() * width + peer)];
          if (pattern.id() == inside) count += of.at[at] - own[at];
          if (count > 0) visit(node.node, pattern, local, peer, count);
        }
      }
    }
  }
}

void AllPairs::put(LoadSheet& sheet, std::int64_t bytes) const {
  for_each_place([&](int node, PairPattern pattern, int local, int peer, int count) {
    const std::int64_t load = count * bytes;
    const bool same_node = pattern.relation == NodeRelation::kSameNode;
    for (const PartLink& link : cluster_->pattern_route(pattern, local, peer)) {
      if (same_node || of_source(link)) sheet.put(cluster_->link_at(link, node, node), load);
    }
    if (same_node) return;
    for (const PartLink& link : cluster_->pattern_route(pattern, peer, local)) {
      if (!of_source(link)) sheet.put(cluster_->link_at(link, node, node), load);
    }
  });
  std::size_t next = 0;
  const auto all = static_cast<std::int64_t>(ranks_.size());
  for (const int members : members_of_domain_) {
    for (int i = 0; i < members; ++i) {
      MemberTraffic& member = sheet.member(ranks_[next++]);
      member.sent_intra_node = (members - 1) * bytes;
      member.sent_inter_node = (all - members) * bytes;
      member.received = (all - 1) * bytes;
    }
  }
}

double AllPairs::longest_wire(const WireLatency& wires) const {
  if (wires.none()) return 0;
  double longest = -std::numeric_limits<double>::infinity();
  if (!wires.by_class()) {
    for (const int from : ranks_) {
      for (const int to : ranks_) {
        if (from != to) longest = std::max(longest, wires.message(from, to));
      }
    }
    return longest;
  }
  const int width = cluster_->gpus_per_node();
  std::vector<bool> seen(static_cast<std::size_t>(PairPattern::kCount * width * width));
  for_each_place([&](int node, PairPattern pattern, int local, int peer, int) {
    const auto entry = static_cast<std::size_t>((pattern.id() * width + local) * width + peer);
    if (seen[entry]) return;
    seen[entry] = true;
    Route route;  // its links at any node have the classes of the real ones
    for (const PartLink& link : cluster_->pattern_route(pattern, local, peer)) {
      route.push_back(cluster_->link_at(link, node, node));
    }
    longest = std::max(longest, wires.along({route.data(), route.size()}));
  });
  return longest;
}

}  // namespace longhaul
