#include "sim/network/nccl/graph.h"

#include <algorithm>
#include <span>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr int kMaxSearchChannels = 32;
constexpr int kMaxNvlsHeads = 32;
constexpr double kDuplicationFloor = 25;  // GB/s a channel
constexpr double kHopperDuplicationFloor = 50;
constexpr int kMostP2pChannels = 32;
constexpr int kPeersPerBatch = 8;
constexpr double kP2pChannelNetworkRate = 14;  // GB/s (NCCL_P2P_PER_CHANNEL_NET_BW)
constexpr double kLlMost = 16.0 * 1024;        // bytes a channel (NCCL_P2P_LL_THRESHOLD)
constexpr double kLlStepBytes = 64.0 * 1024;
constexpr double kStepBytes = 512.0 * 1024;         // NCCL_P2P_NVL_CHUNKSIZE
constexpr double kNetworkStepBytes = 128.0 * 1024;  // NCCL_P2P_NET_CHUNKSIZE
constexpr int kLlByUsedChannels = 22900;            // the version since which LL's reach follows the channels used

std::span<const double> intra_speeds(NcclGpu gpu) {
  static constexpr double kAmpere[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
  static constexpr double kHopper[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
  static constexpr double kBlackwell[] = {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
  switch (gpu) {
    case NcclGpu::kAmpere:
    case NcclGpu::kCdna:
      return kAmpere;
    case NcclGpu::kHopper:
      return kHopper;
    case NcclGpu::kBlackwell:
      return kBlackwell;
  }
  return kHopper;
}

std::span<const double> inter_speeds(NcclGpu gpu) {
  static constexpr double kAmpere[] = {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12};
  static constexpr double kHopper[] = {48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12};
  static constexpr double kBlackwell[] = {96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2};
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

// The largest speed of the list that is not above `rate`; `rate` itself below the list.
double speed_within(std::span<const double> speeds, double rate) {
  for (const double speed : speeds) {
    if (speed <= rate) return speed;
  }
  return rate;
}

// The speed at which whole channels use most of `rate`, the higher one if several do.
double best_speed(std::span<const double> speeds, double rate) {
  double best = 0;
  double used = 0;
  for (const double speed : speeds) {
    const double channels =
        std::min(static_cast<double>(kMaxSearchChannels / 2), static_cast<double>(static_cast<int>(rate / speed)));
    if (channels * speed > used) {
      used = channels * speed;
      best = speed;
    }
  }
  return best > 0 ? best : rate;
}

void duplicate(NcclGraph& graph, NcclGpu gpu) {
  if (graph.ring_rate < kDuplicationFloor) return;
  const bool newer = gpu == NcclGpu::kHopper || gpu == NcclGpu::kBlackwell;
  if (newer && graph.ring_rate < kHopperDuplicationFloor && graph.ring_channels > 4) return;
  const int channels = std::min(2 * graph.ring_channels, kMaxSearchChannels / 2);
  graph.ring_rate = graph.ring_rate * graph.ring_channels / channels;
  graph.ring_channels = channels;
}

void one_domain(NcclGraph& graph, const NcclMachine& machine) {
  graph.ring_rate = best_speed(intra_speeds(machine.gpu), graph.nvlink_rate);
  graph.ring_channels = std::max(1, static_cast<int>(graph.nvlink_rate / graph.ring_rate));
  duplicate(graph, machine.gpu);
  graph.collective_channels = 2 * graph.ring_channels;
}

void several_domains(NcclGraph& graph, const NcclMachine& machine, int per_domain) {
  const double network = domain_network_rate(machine, per_domain);
  const int nics = std::max(1, machine.nics_per_domain * per_domain / machine.gpus_per_domain);
  graph.ring_channels = std::min({nics, per_domain, kMaxSearchChannels / 2});
  graph.same_order = graph.ring_channels == 1;  // else each ring enters at the GPU beside its NIC
  graph.ring_rate = speed_within(inter_speeds(machine.gpu), network / graph.ring_channels);
  duplicate(graph, machine.gpu);
  graph.collective_channels = 2 * graph.ring_channels;
  const bool newer = machine.gpu == NcclGpu::kHopper || machine.gpu == NcclGpu::kBlackwell;
  if (newer && graph.ring_rate > 45 && graph.collective_channels < 16) graph.collective_channels *= 2;
}

}  // namespace

double domain_network_rate(const NcclMachine& machine, int per_domain) { return machine.nic_rate * per_domain; }

NcclGraph nccl_graph(const NcclMachine& machine, int domains, int per_domain) {
  LH_ASSERT(domains >= 1 && per_domain >= 1 && machine.gpus_per_domain >= 1, "{} domains of {} ranks", domains,
            per_domain);
  NcclGraph graph;
  graph.nvlink_rate = machine.nvlink_rate;
  if (!machine.nvswitch && machine.gpus_per_domain > 1) {
    graph.nvlink_rate = machine.nvlink_rate * std::max(1, per_domain - 1) / (machine.gpus_per_domain - 1);
  }
  if (domains == 1) {
    one_domain(graph, machine);
    graph.same_order = machine.nvswitch || per_domain <= 2;
  } else {
    several_domains(graph, machine, per_domain);
  }
  const bool multicast = machine.gpu == NcclGpu::kHopper || machine.gpu == NcclGpu::kBlackwell;
  if (machine.nvls && machine.nvswitch && multicast && per_domain >= 2) {
    graph.nvls_heads = std::min(per_domain, kMaxNvlsHeads);
    graph.nvls_rate = speed_within(intra_speeds(machine.gpu), graph.nvlink_rate / graph.nvls_heads);
    graph.nvls_inter_rate = graph.nvls_rate;
    if (domains > 1) {
      graph.nvls_inter_rate =
          speed_within(inter_speeds(machine.gpu), domain_network_rate(machine, per_domain) / graph.nvls_heads);
    }
    graph.nvls_channels = machine.gpu == NcclGpu::kHopper ? 16 : domains == 1 ? 24 : 32;
  }
  return graph;
}

namespace {

int power_of_two_above(double least) {
  int channels = 1;
  while (channels < least && channels < kMostP2pChannels) channels *= 2;
  return channels;
}

}  // namespace

int p2p_channels_per_peer(const NcclMachine& machine, int ranks, int domains) {
  const int links =
      machine.nvswitch ? machine.nvlink_links : machine.nvlink_links / std::max(1, machine.gpus_per_domain - 1);
  int channels = power_of_two_above(2.0 * links);
  if (domains == 1) return channels;
  const double nics = static_cast<double>(machine.nics_per_domain) / machine.gpus_per_domain;
  channels = std::min(channels, power_of_two_above(std::max(nics, machine.nic_rate / kP2pChannelNetworkRate)));
  const int batches = (ranks + kPeersPerBatch - 1) / kPeersPerBatch;
  while (channels * batches > kMostP2pChannels && channels > 1) channels /= 2;
  return channels;
}

P2pPlan p2p_plan(const NcclMachine& machine, int ranks, int domains, double bytes) {
  const int most = p2p_channels_per_peer(machine, ranks, domains);
  P2pPlan plan;
  plan.ll = machine.version < kLlByUsedChannels && bytes <= kLlMost * most;
  const double step = plan.ll ? kLlStepBytes : domains > 1 ? kNetworkStepBytes : kStepBytes;
  const double smallest = domains > 1 ? step / 2 : step / 8;
  const double largest = domains > 1 ? step : 32 * step;
  plan.channels = most;
  while (plan.channels > 1 && plan.channels * ranks > kMostP2pChannels) plan.channels /= 2;
  while (plan.channels > 1 && smallest * (plan.channels - 1) >= bytes) --plan.channels;
  while (bytes > largest * plan.channels && 2 * plan.channels <= most) plan.channels *= 2;
  if (machine.version >= kLlByUsedChannels) plan.ll = bytes <= kLlMost * plan.channels;
  return plan;
}

int p2p_channels(const NcclMachine& machine, int ranks, int domains, int peers, double largest) {
  if (peers == 0 || largest <= 0) return 0;
  return std::min(peers * p2p_plan(machine, ranks, domains, largest).channels, kMostP2pChannels);
}

}  // namespace longhaul
