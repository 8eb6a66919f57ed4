// Whether every rank still has a way to every other: tried on one or two nodes of every kind, since nodes with the same
// links down under leaves and pods with the same links down have the same routes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/cluster/apply_what_ifs.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxReported = 8;

using DownLinksOf = std::vector<std::int32_t>;

DownLinksOf down_of(const Cluster& cluster, LinkId first, int links) {
  DownLinksOf down;
  for (int index = 0; index < links; ++index) {
    if (cluster.links()[static_cast<std::size_t>(first + index)].down) down.push_back(index);
  }
  return down;
}

// A number for every distinct value, in order of first use.
template <class T>
class Numbers {
 public:
  int of(const T& value) { return known_.try_emplace(value, static_cast<int>(known_.size())).first->second; }

 private:
  std::map<T, int> known_;
};

// Keeps the first two and the last of every kind.
template <class Kind>
std::vector<int> some_of_each(int count, Kind kind) {
  std::map<int, std::vector<int>> kept;
  for (int i = 0; i < count; ++i) {
    std::vector<int>& of = kept[kind(i)];
    if (of.size() == 3) of.pop_back();
    of.push_back(i);
  }
  std::vector<int> all;
  for (const auto& [number, of] : kept) all.insert(all.end(), of.begin(), of.end());
  std::sort(all.begin(), all.end());
  return all;
}

// Nodes that stand for all.
std::vector<int> tried_nodes(const Cluster& cluster) {
  const NodeLayout& node = cluster.node_layout();
  const FabricLayout& fabric = cluster.fabric_layout();
  Numbers<DownLinksOf> profiles;
  std::vector<int> node_kind, leaf_down, pod_down;
  for (int i = 0; i < cluster.nodes(); ++i) {
    node_kind.push_back(profiles.of(down_of(cluster, cluster.first_link_of_node(i), node.links)));
  }
  for (int i = 0; i < cluster.leaf_groups(); ++i) {
    leaf_down.push_back(profiles.of(down_of(cluster, cluster.first_link_of_leaf(i), fabric.links_per_leaf)));
  }
  for (int i = 0; i < cluster.pods(); ++i) {
    pod_down.push_back(profiles.of(down_of(cluster, cluster.first_link_of_pod(i), fabric.links_per_pod)));
  }
  // A group is what is under one leaf; its kind: its own links and the kinds of its nodes, then those of its pod.
  const int groups = (cluster.nodes() - 1) / fabric.nodes_per_leaf + 1;
  std::vector<std::vector<int>> group_nodes(static_cast<std::size_t>(groups));
  for (int i = 0; i < cluster.nodes(); ++i) group_nodes[static_cast<std::size_t>(fabric.leaf_of(i))].push_back(i);
  Numbers<std::vector<int>> group_numbers;
  const auto group_kind = [&](int group) {
    std::vector<int> kinds;
    for (const int i : group_nodes[static_cast<std::size_t>(group)])
      kinds.push_back(node_kind[static_cast<std::size_t>(i)]);
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    const int pod = fabric.pod_of(group_nodes[static_cast<std::size_t>(group)].front());
    kinds.push_back(leaf_down.empty() ? -1 : leaf_down[static_cast<std::size_t>(group)]);
    kinds.push_back(pod_down.empty() ? -1 : pod_down[static_cast<std::size_t>(pod)]);
    return group_numbers.of(kinds);
  };
  std::vector<int> tried;
  for (const int group : some_of_each(groups, group_kind)) {
    const std::vector<int>& nodes = group_nodes[static_cast<std::size_t>(group)];
    const auto kind = [&](int i) { return node_kind[static_cast<std::size_t>(nodes[static_cast<std::size_t>(i)])]; };
    for (const int i : some_of_each(static_cast<int>(nodes.size()), kind)) {
      tried.push_back(nodes[static_cast<std::size_t>(i)]);
    }
  }
  return tried;
}

// The what-if that takes the last way between two ranks: the first with which, after those before it, there is none.
const WhatIf& cause_of(const Cluster& cluster, int from, int to) {
  const std::vector<WhatIf>& list = cluster.topology().what_ifs;
  std::size_t with_way = 0;  // as many of the list leave one
  std::size_t without = list.size();
  while (without - with_way > 1) {
    const std::size_t middle = with_way + (without - with_way) / 2;
    (cluster.with_what_ifs_down(middle).find_route(from, to) ? with_way : without) = middle;
  }
  return list[without - 1];
}

}  // namespace

void check_ways(const Cluster& cluster, Errors& errors) {
  const std::vector<WhatIf>& list = cluster.topology().what_ifs;
  if (std::none_of(list.begin(), list.end(), [](const WhatIf& what_if) { return what_if.down; })) return;
  std::vector<int> nodes;
  if (cluster.topology().graph) {
    for (int node = 0; node < cluster.nodes(); ++node) nodes.push_back(node);
  } else {
    nodes = tried_nodes(cluster);
  }
  std::vector<int> ranks;
  for (const int node : nodes) {
    for (int rank = node * cluster.gpus_per_node(); rank < (node + 1) * cluster.gpus_per_node(); ++rank) {
      if (rank < cluster.gpus()) ranks.push_back(rank);
    }
  }
  const std::size_t before = errors.size();
  std::set<std::pair<int, int>> told;  // nodes: one pair of ranks is enough
  for (const int from : ranks) {
    const auto cut_off =
        std::find_if(ranks.begin(), ranks.end(), [&](int to) { return !cluster.find_route(from, to); });
    if (cut_off == ranks.end() || !told.insert({cluster.node_of(from), cluster.node_of(*cut_off)}).second) continue;
    const WhatIf& cause = cause_of(cluster, from, *cut_off);
    errors.push_back({cause.file, cause.path,
                      fmt::format("the links that are down leave no way from rank {} to rank {}", from, *cut_off),
                      "every rank to reach every other: leave one more of these links up", ""});
    if (errors.size() - before == kMaxReported) return;
  }
}

}  // namespace longhaul
