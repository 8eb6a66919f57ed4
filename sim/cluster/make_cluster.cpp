#include <fmt/format.h>

#include <algorithm>

#include "sim/cluster/cluster.h"

namespace longhaul {
namespace {

constexpr int kMaxGpus = 1 << 20;

// GPUs that the ports of its switches allow; nullopt: any number.
std::optional<std::int64_t> most_by_ports(const Topology& topology) {
  if (topology.graph) return std::nullopt;
  if (!topology.leaves()) {
    if (!topology.leaf_radix) return std::nullopt;
    return static_cast<std::int64_t>(*topology.leaf_radix / topology.nics_per_node) * topology.gpus_per_node;
  }
  // Two levels: every leaf has a link or more to every spine. With pods, the reader checks the spines of one.
  if (!topology.spine_radix || topology.leaves_per_pod > 0) return std::nullopt;
  const int uplinks = leaf_uplinks(topology);
  const int spines = topology.spines.value_or(uplinks);
  const int links = (uplinks + spines - 1) / spines;
  const int rails = topology.network_fabric == NetworkFabric::kRails ? topology.nics_per_node : 1;
  const std::int64_t leaves = std::max(1, *topology.spine_radix / links / rails);  // one leaf needs no spine
  return leaves * topology.nodes_per_leaf * topology.gpus_per_node;
}

}  // namespace

Expected<Cluster> make_cluster(const Topology& topology, int gpus, const std::string& file, const std::string& path) {
  Errors errors;
  const int per_node = topology.gpus_per_node;
  const auto refuse = [&](std::string expected) {
    errors.push_back({file, path, fmt::format("is {}", gpus), std::move(expected), ""});
  };
  if (gpus < 1) refuse("at least 1 GPU");
  if (topology.nodes && gpus > *topology.nodes * per_node) {
    refuse(fmt::format("at most {} GPUs, all that {} has", *topology.nodes * per_node, topology.name));
  }
  if (errors.empty() && gpus > kMaxGpus) refuse(fmt::format("at most {} GPUs", kMaxGpus));
  if (errors.empty() && gpus > per_node && gpus % per_node != 0) {
    refuse(fmt::format("at most {0} GPUs, or a multiple of the {0} of a node of {1}: {2} or {3}", per_node,
                       topology.name, gpus / per_node * per_node, (gpus / per_node + 1) * per_node));
  }
  const std::optional<std::int64_t> most = most_by_ports(topology);
  if (errors.empty() && most && gpus > *most && gpus > per_node) {
    refuse(
        fmt::format("at most {} GPUs: the switches of {} have no more ports (leaf_radix, spine_radix); or pods, "
                    "larger switches, more spines",
                    *most, topology.name));
  }
  if (!errors.empty()) return tl::unexpected(errors);
  Cluster cluster(topology, gpus, errors);
  if (!errors.empty()) return tl::unexpected(errors);
  return cluster;
}

}  // namespace longhaul
