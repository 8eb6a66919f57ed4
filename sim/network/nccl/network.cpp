#include <algorithm>

#include "sim/network/nccl/times.h"

namespace longhaul {
namespace {

constexpr double kLl128Payload = 120.0 / 128;  // 120 of 128 bytes of an LL128 line
constexpr double kLlChunk = 32.0 * 1024;       // bytes a channel and step
constexpr double kTreeChunk = 512.0 * 1024;

// A node of a tree with two children sends every byte twice; with two domains each is a leaf of the other.
double tree_fan_out(int domains) { return domains > 2 ? 2 : 1; }

}  // namespace

Parts network_ring(const NcclCase& c, NcclProtocol protocol, int channels) {
  const double n = c.call.ranks;
  const double rounds = c.call.collective == NcclCollective::kAllReduce ? 2 : 1;
  const double steps = rounds * (n - 1);
  const double far = rounds * (c.call.domains - 1);
  const double near = steps - far;
  const double nic = domain_network_rate(c.machine, c.call.per_domain);
  const double shares = c.call.collective == NcclCollective::kBroadcast ? n : steps;
  const double bytes = c.call.bytes / n * shares;
  const double start = c.gpu(GpuTerm::kStart);
  if (protocol == NcclProtocol::kLl) {
    const double step = std::max(c.gpu(GpuTerm::kLlStep), post_us(c.machine));
    const double rate = std::min(c.network(NetworkTerm::kLlShare) * nic, kLlPayload * c.graph.nvlink_rate);
    return {start + c.gpu(GpuTerm::kLlRamp) + near * step + far * c.network(NetworkTerm::kLlHop),
            microseconds(bytes, rate)};
  }
  const double efficiency = c.network(NetworkTerm::kEfficiency);
  if (protocol == NcclProtocol::kLl128) {
    const double step = std::max(c.gpu(GpuTerm::kLl128Step), post_us(c.machine));
    const double rate =
        std::min(efficiency * kLl128Payload * nic, c.gpu(GpuTerm::kLl128Efficiency) * c.graph.nvlink_rate);
    return {start + c.gpu(GpuTerm::kLl128Start) + near * step + far * c.network(NetworkTerm::kLl128Hop),
            microseconds(bytes, rate)};
  }
  const double step = std::max(c.gpu(GpuTerm::kSimpleStep), 3 * post_us(c.machine));
  // A broadcast is a pipeline: the ranks between the root and the last store a chunk before they forward it.
  const double chunk = std::min(c.call.bytes / channels, kTreeChunk);
  const double forward = c.call.collective == NcclCollective::kBroadcast
                             ? (n - 2) * microseconds(chunk, c.gpu(GpuTerm::kP2pAloneRate))
                             : 0;
  return {
      start + c.network(NetworkTerm::kSimpleStart) + near * step + far * c.network(NetworkTerm::kSimpleHop) + forward,
      microseconds(bytes, std::min(efficiency * nic, c.graph.nvlink_rate))};
}

// Every chunk climbs the chain of a domain's ranks and the tree of domains, then comes down again. A step stores its
// chunk before it forwards it; chunks follow each other.
Parts network_tree(const NcclCase& c, NcclProtocol protocol, int channels) {
  const double chain = 2.0 * (c.call.per_domain - 1);
  const double hops = 2 * floor_log2(c.call.domains);
  const double nic = domain_network_rate(c.machine, c.call.per_domain) / tree_fan_out(c.call.domains);
  const double part = c.call.bytes / channels;
  const double start = c.gpu(GpuTerm::kStart);
  if (protocol == NcclProtocol::kLl) {
    const double chunk = std::min(part, kLlChunk);
    const double forward = microseconds(chunk, c.gpu(GpuTerm::kTreeLlRate));
    return {start + c.gpu(GpuTerm::kLlRamp) + chain * c.gpu(GpuTerm::kLlStep) + hops * c.network(NetworkTerm::kLlHop) +
                (chain + hops) * forward,
            microseconds(c.call.bytes,
                         std::min(c.network(NetworkTerm::kTreeLlShare) * nic, 0.5 * kLlPayload * c.graph.nvlink_rate))};
  }
  const bool ll128 = protocol == NcclProtocol::kLl128;
  const double chunk = std::min(part, ll128 ? ll128_tree_chunk(c.call, channels) : kTreeChunk);
  const double forward = microseconds(chunk, c.gpu(GpuTerm::kTreeChunkRate));
  const double payload = ll128 ? kLl128Payload : 1;
  const double rate = std::min(c.network(NetworkTerm::kTreeEfficiency) * nic, 0.5 * c.graph.nvlink_rate) * payload;
  const double step = c.gpu(ll128 ? GpuTerm::kLl128Step : GpuTerm::kTreeStep);
  const double hop = c.network(ll128 ? NetworkTerm::kLl128Hop : NetworkTerm::kSimpleHop);
  const double begin = ll128 ? c.gpu(GpuTerm::kLl128Start) : c.network(NetworkTerm::kSimpleStart);
  return {start + begin + chain * step + hops * hop + (chain + hops) * forward, microseconds(c.call.bytes, rate)};
}

Parts nvls_tree(const NcclCase& c) {
  const double local = c.call.per_domain;
  const double chunk = nvls_chunk(c.machine, c.graph, c.call, NcclAlgorithm::kNvlsTree);
  const double loop = std::min(c.call.bytes, chunk * c.graph.nvls_heads * c.graph.nvls_channels);
  const double loops = loop > 0 ? c.call.bytes / loop : 1;
  const double nic = c.network(NetworkTerm::kTreeEfficiency) * domain_network_rate(c.machine, c.call.per_domain) /
                     tree_fan_out(c.call.domains);
  const double near = c.gpu(GpuTerm::kNvlsEfficiency) * c.graph.nvlink_rate * local / (2 * (local - 1));
  const double one = microseconds(loop, std::min(nic, near));
  const double hops = 2 * floor_log2(c.call.domains) * c.network(NetworkTerm::kSimpleHop);
  const double sync = c.network(NetworkTerm::kNvlsTreeSync);
  const double fill = c.gpu(GpuTerm::kNvlsTreeFill);
  return {c.gpu(GpuTerm::kStart) + c.network(NetworkTerm::kNvlsTreeStart) + hops + (loops + fill) * sync + fill * one,
          loops * one};
}

// The switches reduce: data leaves a domain once, whatever the number of domains.
Parts collnet(const NcclCase& c) {
  NcclCall two = c.call;
  two.domains = 2;
  return nvls_tree({c.constants, c.machine, c.graph, two});
}

// The same bytes as a ring of one rank a domain, in log2 rounds (graph/tuning.cc: 2.8 us a rank remain).
Parts pat(const NcclCase& c) {
  const double n = c.call.ranks;
  const double nic = domain_network_rate(c.machine, c.call.per_domain);
  return {c.gpu(GpuTerm::kStart) + c.network(NetworkTerm::kSimpleStart) +
              floor_log2(c.call.domains) * c.network(NetworkTerm::kSimpleHop) + 2.8 * n,
          microseconds(c.call.bytes * (n - 1) / n, c.network(NetworkTerm::kEfficiency) * nic)};
}

}  // namespace longhaul
