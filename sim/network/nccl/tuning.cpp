#include "sim/network/nccl/tuning.h"

#include <algorithm>
#include <array>
#include <limits>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr double kKiB = 1024;
constexpr int kProtocols = 3;
constexpr int kNvlsRatesRevised = 22800;  // versions of NCCL
constexpr int kNvlsTreeHopRevised = 22809;
// Local ranks that NVLS gathers from or scatters to; all-reduce has no such bound (NCCL_MAX_NVLS_ARITY in enqueue.cc,
// updateCollCostTable).
constexpr int kMostNvlsArity = 32;

struct Latency {
  double ll;
  double ll128;
  double simple;

  double of(NcclProtocol protocol) const {
    return protocol == NcclProtocol::kLl ? ll : protocol == NcclProtocol::kLl128 ? ll128 : simple;
  }
};

// Rows of the tables: one domain, two domains, more.
std::size_t domain_row(int domains) { return static_cast<std::size_t>(domains <= 2 ? domains - 1 : 2); }

using PerDomains = std::array<double, 3>;

struct GenerationRates {  // GB/s
  double ll_one_domain;   // whole GPU
  PerDomains ring_ll128;  // a channel
  PerDomains tree_ll128;
  PerDomains tree;
  PerDomains nvls_tree;
  double nvls_efficiency;
};

const GenerationRates& rates_of(NcclGpu gpu) {
  static constexpr GenerationRates kAmpere = {87.7, {20, 20, 20}, {20, 20, 20}, {24, 23.6, 17.8}, {24, 23.6, 17.8}, 0};
  static constexpr GenerationRates kHopper = {
      141, {36.7, 36.7, 36.7}, {36.7, 36.7, 29}, {38.7, 41.4, 36}, {0, 57.7, 45.5}, 0.85};
  static constexpr GenerationRates kBlackwell = {282,           {40, 40, 40}, {55.6, 31.67, 20}, {70, 42.8, 24},
                                                 {0, 96, 43.8}, 0.74};
  switch (gpu) {
    case NcclGpu::kAmpere:
      return kAmpere;
    case NcclGpu::kHopper:
    case NcclGpu::kCdna:
      return kHopper;
    case NcclGpu::kBlackwell:
      return kBlackwell;
  }
  return kHopper;
}

// Over several nodes NCCL takes the LL limit of the whole GPU from the CPU's maker, not from the GPU.
double most_ll_rate(const NcclMachine& machine, int domains) {
  if (domains == 1) return rates_of(machine.gpu).ll_one_domain;
  static constexpr PerDomains kIntelRates = {39, 39, 20.4};
  static constexpr PerDomains kAmdRates = {87.7, 22.5, 19};
  return (machine.cpu == HostCpu::kAmd ? kAmdRates : kIntelRates)[domain_row(domains)];
}

// What a tree all-reduce reaches of its rate at 64 B x 2^i (graph/tuning.cc, treeCorrectionFactor).
double tree_correction(NcclProtocol protocol, double bytes) {
  static constexpr std::array<std::array<double, 24>, kProtocols> kFactors = {{
      {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
      {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
      {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
  }};
  std::size_t i = 0;
  double size = 64;
  if (bytes < size) return 1;
  while (2 * size <= bytes && i < 24) {
    size *= 2;
    ++i;
  }
  return i < 23 ? kFactors[static_cast<std::size_t>(protocol)][i] : 1;
}

int ring_steps(const NcclCall& call) {
  switch (call.collective) {
    case NcclCollective::kAllReduce:
      return 2 * (call.ranks - 1);
    case NcclCollective::kAllGather:
    case NcclCollective::kReduceScatter:
      return call.ranks - 1;
    case NcclCollective::kBroadcast:
    case NcclCollective::kAllToAll:
    case NcclCollective::kSendRecv:
      return call.ranks;
  }
  return call.ranks;
}

bool gathers(NcclCollective collective) {
  return collective == NcclCollective::kAllGather || collective == NcclCollective::kReduceScatter;
}

double ring_estimate(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call, NcclProtocol protocol) {
  static constexpr Latency kBase = {6.6, 14, 8.4};
  static constexpr Latency kNvlink = {0.6, 1.9, 3.4};
  static constexpr Latency kNetwork = {2.7, 4, 14};
  static constexpr Latency kTreeNetwork = {5, 8.5, 14};
  double rate = graph.ring_bus_rate();
  if (protocol == NcclProtocol::kLl) rate = std::min(most_ll_rate(machine, call.domains), 0.5 * rate);
  if (protocol == NcclProtocol::kLl128) {
    const double channel = rates_of(machine.gpu).ring_ll128[domain_row(call.domains)];
    rate = std::min(0.92 * rate, graph.ring_channels * channel);
  }
  const int steps = ring_steps(call);
  rate *= static_cast<double>(call.ranks) / steps;
  double latency = kBase.of(protocol);
  const bool one_rank = call.per_domain == 1 && call.domains > 1;
  const double inter = one_rank ? kTreeNetwork.of(protocol) : kNetwork.of(protocol);
  if (call.collective == NcclCollective::kBroadcast) {
    // graph/tuning.cc, "sameChannels": rings of one order count one hop, others every step, Simple at a tree's latency.
    static constexpr Latency kStep = {0.6, 1.9, 4};
    const Latency& near = graph.same_order ? kNvlink : kStep;
    latency += (graph.same_order ? 1 : steps) * (call.domains > 1 ? kNetwork : near).of(protocol);
  } else {
    const double post = call.domains == 1 ? 0 : post_us(machine) * (protocol == NcclProtocol::kSimple ? 3 : 1);
    const int rounds = call.collective == NcclCollective::kAllReduce ? 2 : 1;
    const int inter_steps = rounds * (call.domains - 1);
    latency += (steps - inter_steps) * std::max(kNvlink.of(protocol), post) + inter_steps * inter;
  }
  if (protocol == NcclProtocol::kSimple && call.domains > 1 && call.collective == NcclCollective::kAllReduce &&
      call.bytes >= 64.0 * graph.collective_channels * call.ranks) {
    latency *= 1.4;
  }
  return latency + call.bytes / (1000 * rate);
}

double tree_estimate(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call, NcclProtocol protocol) {
  static constexpr Latency kBase = {6.8, 14, 8.4};
  static constexpr Latency kNvlink = {0.6, 1.25, 4};
  static constexpr Latency kNetwork = {5, 8.5, 14};
  const GenerationRates& rates = rates_of(machine.gpu);
  const std::size_t row = domain_row(call.domains);
  double rate = std::min(0.92 * graph.ring_bus_rate(), graph.ring_channels * rates.tree[row]);
  if (protocol == NcclProtocol::kLl) rate = std::min(rate / 3.8, most_ll_rate(machine, call.domains));
  if (protocol == NcclProtocol::kLl128) {
    rate = std::min(rate * (call.domains == 1 ? 7.0 / 9 : 120.0 / 128), graph.ring_channels * rates.tree_ll128[row]);
  }
  rate *= 0.5 * tree_correction(protocol, call.bytes);
  const double latency = kBase.of(protocol) + 2 * ((call.per_domain - 1) * kNvlink.of(protocol) +
                                                   floor_log2(call.domains) * kNetwork.of(protocol));
  return latency + call.bytes / (1000 * rate);
}

// Until 2.27 the rate of a head was taken as the smaller of both sides and the tree's network hop was shorter.
double nvls_estimate(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call,
                     NcclAlgorithm algorithm) {
  const GenerationRates& rates = rates_of(machine.gpu);
  const int heads = graph.nvls_heads;
  const bool tree = algorithm == NcclAlgorithm::kNvlsTree;
  const bool reduces = call.collective == NcclCollective::kAllReduce;
  const double others = static_cast<double>(call.per_domain - 1) / call.per_domain;
  double rate = 0;
  if (machine.version < kNvlsRatesRevised) {
    const double inter = call.domains > 1 ? graph.nvls_inter_rate : graph.nvls_rate;
    rate = reduces ? std::min(graph.nvls_rate, tree && call.domains > 2 ? inter / 2 : inter)
                   : std::min(graph.nvls_rate * others, inter * 0.9);
    rate *= heads * (reduces ? 5.0 / 6 : 1);
  } else {
    rate = graph.nvls_rate * rates.nvls_efficiency * (heads - 1) / heads * (reduces ? 2.0 : others);
    if (call.domains > 1) rate = std::min(rate, graph.nvls_inter_rate * (tree && call.domains <= 2 ? 2 : 1));
    if (tree) rate = std::min(rate, rates.nvls_tree[domain_row(call.domains)]);
    rate *= heads;
    if (reduces) rate *= static_cast<double>(call.ranks) / ring_steps(call);
  }
  double latency = 25;
  if (tree) latency += 2 * floor_log2(call.domains) * (machine.version < kNvlsTreeHopRevised ? 14 : 20.9);
  if (!tree && call.domains > 1) latency += 18;
  return latency + call.bytes / (1000 * rate);
}

double collnet_estimate(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call, bool direct) {
  double rate = graph.ring_bus_rate();
  double latency = 0;
  const int far = call.per_domain - 1;
  if (direct) {
    if (gathers(call.collective)) {
      rate = call.per_domain * graph.ring_rate * 0.9;
    } else {
      double factor = static_cast<double>(call.per_domain) / graph.ring_channels;
      factor -= (factor - 1) / 2;
      rate /= factor;
      if (machine.gpu != NcclGpu::kAmpere) rate *= 0.85;
    }
    latency = 2 * (std::min(1, far) * 3.7 + far * 0.4) + 31;
  } else {
    latency = 2 * far * 2.8 + 30;
  }
  if (!gathers(call.collective)) rate *= 0.5;
  return latency + call.bytes / (1000 * rate);
}

double pat_estimate(const NcclGraph& graph, const NcclCall& call) {
  const double latency = 8 + floor_log2(call.domains) * (14 / 3.5) + 2.8 * call.ranks;
  return latency + call.bytes / (1000 * 0.75 * graph.ring_bus_rate());
}

// What the makers of a network tell their users to set between nodes. Google's guides for GPUDirect-TCPX set
// NCCL_ALGO=Ring and NCCL_PROTO=Simple. On TCPXO NVLS is off, LL128 is not used, and the plug-in reduces in trees: the
// measured 338 GB/s of bus bandwidth over NICs of 200 GB/s a node are out of a ring's reach.
bool vendor_allows(const NcclMachine& machine, const NcclCall& call, NcclAlgorithm algorithm, NcclProtocol protocol) {
  const bool ring = algorithm == NcclAlgorithm::kRing;
  if (machine.network == NcclNetwork::kTcpx) return ring && protocol == NcclProtocol::kSimple;
  if (machine.network == NcclNetwork::kTcpxo) {
    if (protocol == NcclProtocol::kLl128) return false;
    return call.collective == NcclCollective::kAllReduce ? algorithm == NcclAlgorithm::kTree : ring;
  }
  // NCCL allows LL128 up to PXN, but the measured Hopper tables follow LL up to 512 KiB.
  const bool rdma = machine.network == NcclNetwork::kInfiniBand || machine.network == NcclNetwork::kRoce;
  if (rdma && machine.gpu != NcclGpu::kAmpere) return protocol != NcclProtocol::kLl128;
  return true;
}

bool allowed(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call, NcclAlgorithm algorithm,
             NcclProtocol protocol) {
  const bool simple = protocol == NcclProtocol::kSimple;
  const bool reduces = call.collective == NcclCollective::kAllReduce;
  if (call.domains > 1 && !vendor_allows(machine, call, algorithm, protocol)) return false;
  switch (algorithm) {
    case NcclAlgorithm::kRing:
      return true;
    case NcclAlgorithm::kTree:
      return reduces;
    case NcclAlgorithm::kNvls:
      if (!simple || graph.nvls_heads < 2 || !(reduces || gathers(call.collective))) return false;
      if (!reduces && call.per_domain > kMostNvlsArity) return false;
      return call.domains == 1 || (machine.sharp && reduces);
    case NcclAlgorithm::kNvlsTree:
      return simple && reduces && graph.nvls_heads >= 2 && call.domains > 1;
    case NcclAlgorithm::kCollNetDirect:
      return simple && machine.sharp && machine.nvswitch && call.domains > 1 && (reduces || gathers(call.collective));
    case NcclAlgorithm::kCollNetChain:
      return simple && machine.sharp && call.domains > 1 && reduces;
    case NcclAlgorithm::kPat:
      return simple && gathers(call.collective) && call.per_domain == 1 && call.domains > 1;
    case NcclAlgorithm::kDirect:
      return false;
  }
  return false;
}

// NCCL_ALGO holds where some protocol of it is allowed; elsewhere the ring stands in (ringbdw in graph/tuning.cc of
// 2.19 to 2.23; from 2.24 NCCL refuses the call, which is no time to predict).
std::optional<NcclAlgorithm> forced_here(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call) {
  if (!machine.forced) return std::nullopt;
  const bool runs = allowed(machine, graph, call, *machine.forced, NcclProtocol::kSimple) ||
                    allowed(machine, graph, call, *machine.forced, NcclProtocol::kLl);
  return runs ? *machine.forced : NcclAlgorithm::kRing;
}

double threads_of(NcclAlgorithm algorithm, NcclProtocol protocol) {
  if (protocol == NcclProtocol::kLl128 || algorithm == NcclAlgorithm::kNvls || algorithm == NcclAlgorithm::kNvlsTree ||
      algorithm == NcclAlgorithm::kCollNetDirect || algorithm == NcclAlgorithm::kCollNetChain) {
    return 640;
  }
  return 512;
}

}  // namespace

std::optional<double> nccl_estimate(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call,
                                    NcclAlgorithm algorithm, NcclProtocol protocol) {
  if (!allowed(machine, graph, call, algorithm, protocol)) return std::nullopt;
  switch (algorithm) {
    case NcclAlgorithm::kRing:
      return ring_estimate(machine, graph, call, protocol);
    case NcclAlgorithm::kTree:
      return tree_estimate(machine, graph, call, protocol);
    case NcclAlgorithm::kNvls:
    case NcclAlgorithm::kNvlsTree:
      return nvls_estimate(machine, graph, call, algorithm);
    case NcclAlgorithm::kCollNetDirect:
    case NcclAlgorithm::kCollNetChain:
      return collnet_estimate(machine, graph, call, algorithm == NcclAlgorithm::kCollNetDirect);
    case NcclAlgorithm::kPat:
      return pat_estimate(graph, call);
    case NcclAlgorithm::kDirect:
      break;
  }
  return std::nullopt;
}

NcclChoice nccl_choose(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call) {
  NcclChoice best;
  double least = std::numeric_limits<double>::infinity();
  const std::optional<NcclAlgorithm> forced = forced_here(machine, graph, call);
  for (int a = 0; a < static_cast<int>(NcclAlgorithm::kDirect); ++a) {
    for (int p = 0; p < kProtocols; ++p) {
      const auto algorithm = static_cast<NcclAlgorithm>(a);
      const auto protocol = static_cast<NcclProtocol>(p);
      if (forced && algorithm != *forced) continue;
      const std::optional<double> time = nccl_estimate(machine, graph, call, algorithm, protocol);
      if (!time || *time >= least) continue;
      least = *time;
      best.algorithm = algorithm;
      best.protocol = protocol;
    }
  }
  best.channels = nccl_channels(machine, graph, call, best.algorithm, best.protocol);
  return best;
}

int nccl_channels(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call, NcclAlgorithm algorithm,
                  NcclProtocol protocol) {
  static_cast<void>(machine);
  if (algorithm == NcclAlgorithm::kNvls || algorithm == NcclAlgorithm::kNvlsTree) {
    const bool several = call.domains > 1 && algorithm == NcclAlgorithm::kNvls;
    return several ? std::min(graph.nvls_channels, graph.collective_channels) : graph.nvls_channels;
  }
  if (algorithm == NcclAlgorithm::kCollNetDirect || algorithm == NcclAlgorithm::kCollNetChain) {
    return graph.collective_channels;
  }
  double threshold = protocol == NcclProtocol::kSimple ? 64 : 8;  // bytes a thread
  if (protocol == NcclProtocol::kLl && algorithm == NcclAlgorithm::kRing) threshold *= call.ranks;
  const double share = threads_of(algorithm, protocol) * threshold;
  int channels = graph.collective_channels;
  while (channels > 1 && call.bytes < channels * share) --channels;
  return channels;
}

double ll128_tree_chunk(const NcclCall& call, int channels) {
  const double steps = 1 + floor_log2(call.domains) + 0.1 * call.per_domain;
  double chunk = 560 * kKiB;
  while (call.bytes / (channels * chunk) < steps * 64 / call.per_domain && chunk > 128 * kKiB) chunk /= 2;
  while (call.bytes / (channels * chunk) < steps * 16 / call.per_domain && chunk > 32 * kKiB) chunk /= 2;
  return chunk;
}

double nvls_chunk(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call, NcclAlgorithm algorithm) {
  const int channels = nccl_channels(machine, graph, call, algorithm, NcclProtocol::kSimple);
  const double parallel = static_cast<double>(channels) * graph.nvls_heads;
  double chunk = 128 * kKiB;
  if (algorithm == NcclAlgorithm::kNvls) {
    if (call.bytes < 64 * parallel * chunk) chunk = 64 * kKiB;
    if (call.bytes < 8 * parallel * chunk) chunk = 32 * kKiB;
    if (call.bytes < 2 * parallel * chunk) chunk = 16 * kKiB;
    return chunk;
  }
  const bool small_from_the_start = call.domains >= 4 && machine.gpu == NcclGpu::kHopper;
  if (small_from_the_start) chunk = 64 * kKiB;
  if (call.bytes < 4 * parallel * chunk && chunk > 64 * kKiB) chunk = 64 * kKiB;
  if (call.bytes < parallel * chunk && chunk > 32 * kKiB) chunk = 32 * kKiB;
  return chunk;
}

}  // namespace longhaul
