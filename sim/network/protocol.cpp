#include "sim/network/protocol.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;

constexpr NcclConstants kAmpereConstants = {
    .start_us = 7.5,
    .ll_step_us = 1.05,
    .ll_ramp_us = 2.5,
    .ll_channel_rate = 40,
    .ll128_start_us = 11,
    .ll128_step_us = 1.05,
    .ll128_efficiency = 0.64,
    .simple_start_us = 14.6,
    .simple_step_us = 6.9,
    .exchange_ll_us = 4.7,
    .exchange_channel_rate = 9.9,
};
constexpr NcclConstants kHopperConstants = {
    .start_us = 4.4,
    .ll_step_us = 0.83,
    .ll_ramp_us = 0.6,
    .ll_channel_rate = 17,
    .ll128_start_us = 5,
    .ll128_step_us = 1.4,
    .ll128_efficiency = 0.85,
    .simple_start_us = 8.9,
    .simple_step_us = 2.8,
    .exchange_ll_us = 2.5,
    .exchange_channel_rate = 19.8,
};

// Bytes that one channel moves in one step. Small buffers use fewer channels: LL needs 4 KiB a rank and channel,
// Simple 32 KiB a channel (NCCL 2.28 enqueue.cc, topoGetAlgoInfo).
double step_bytes(const GroupShape& group, Protocol protocol, std::int64_t total) {
  const std::int64_t wanted =
      protocol == Protocol::kLl ? total / (std::int64_t{4096} * group.ranks) : total / (std::int64_t{32} << 10);
  const std::int64_t channels = std::clamp<std::int64_t>(wanted, 1, kMaxChannels);
  return static_cast<double>(total) / static_cast<double>(group.ranks * channels);
}

double one_node_latency_us(const Topology& topology, const GroupShape& group, Protocol protocol, int steps,
                           std::int64_t total) {
  const NcclConstants& nccl = nccl_constants(topology.device.generation);
  const double extra_us = nvlink_extra_us(topology);
  const double share_us = static_cast<double>(total) / group.ranks / (group.local_rate * kGiga) / kMicro;
  const double bytes = step_bytes(group, protocol, total);
  switch (protocol) {
    case Protocol::kLl:
      return nccl.start_us + steps * (nccl.ll_step_us + extra_us) + nccl.ll_ramp_us * std::min(1.0, bytes / 4096) +
             share_us * kLlCopy / kLlEfficiency;
    case Protocol::kLl128:
      return nccl.start_us + nccl.ll128_start_us + steps * (nccl.ll128_step_us + extra_us) +
             share_us * kSimpleCopy / nccl.ll128_efficiency;
    case Protocol::kSimple:
      break;
  }
  const double chunk_us = std::min(bytes, 512.0 * 1024) / (kSimpleChunkRate * kGiga) / kMicro;
  return nccl.start_us + nccl.simple_start_us + steps * (nccl.simple_step_us + extra_us + chunk_us) +
         share_us * kSimpleCopy;
}

}  // namespace

const NcclConstants& nccl_constants(GpuGeneration generation) {
  return generation == GpuGeneration::kAmpere ? kAmpereConstants : kHopperConstants;
}

double nvlink_extra_us(const Topology& topology) {
  return topology.nvlink_step().us() - Time::from_us(kFittedNvLinkUs).us();
}

double network_hop_seconds(const Topology& topology, Protocol protocol) {
  LH_ASSERT(protocol != Protocol::kLl128, "LL128 has no hop over the network");
  return (topology.network_step() + (protocol == Protocol::kLl ? topology.ll_hop : topology.simple_hop)).seconds();
}

double ring_latency(const Cluster& cluster, const GroupShape& group, Protocol protocol, int steps, std::int64_t total) {
  const Topology& topology = cluster.topology();
  const NcclConstants& nccl = nccl_constants(topology.device.generation);
  const double extra_us = nvlink_extra_us(topology);
  if (group.nodes == 1) return one_node_latency_us(topology, group, protocol, steps, total) * kMicro;
  // steps is a multiple of n-1, so the same multiple of D-1 of them crosses nodes.
  const int crossings = steps / (group.ranks - 1) * (group.nodes - 1);
  switch (protocol) {
    case Protocol::kLl:
      return (nccl.start_us + (steps - crossings) * (std::max(nccl.ll_step_us, kNetworkLlStepUs) + extra_us)) * kMicro +
             crossings * network_hop_seconds(topology, protocol);
    case Protocol::kLl128:
      return std::numeric_limits<double>::infinity();
    case Protocol::kSimple:
      break;
  }
  return (nccl.start_us + (steps - crossings) * (std::max(nccl.simple_step_us, kNetworkSimpleStepUs) + extra_us)) *
             kMicro +
         crossings * network_hop_seconds(topology, protocol);
}

double ring_step_seconds(const Cluster& cluster, const GroupShape& group, Protocol protocol, int steps,
                         std::int64_t total) {
  if (protocol != Protocol::kLl || group.nodes > 1) return 0;
  const double rate = nccl_constants(cluster.device().generation).ll_channel_rate * kGiga;
  return steps * step_bytes(group, protocol, total) / rate;
}

double ring_efficiency(const Cluster& cluster, const GroupShape& group, Protocol protocol, const LinkClass& kind) {
  switch (protocol) {
    case Protocol::kLl:
      if (group.nodes == 1 || kind.scope == LinkScope::kIntraNode) return kLlEfficiency;
      return std::min(1.0, kLlNetworkEfficiency / kind.efficiency);
    case Protocol::kLl128:
      return nccl_constants(cluster.device().generation).ll128_efficiency;
    case Protocol::kSimple:
      break;
  }
  return 1;
}

double tree_latency(const Cluster& cluster, const GroupShape& group) {
  const NcclConstants& nccl = nccl_constants(cluster.device().generation);
  const int levels = static_cast<int>(std::bit_width(static_cast<unsigned>(group.nodes))) - 1;
  const double step_us = nccl.ll_step_us + nvlink_extra_us(cluster.topology());
  return (nccl.start_us + 2 * (group.per_node - 1) * step_us) * kMicro +
         2 * levels * network_hop_seconds(cluster.topology(), Protocol::kLl);
}

}  // namespace longhaul
