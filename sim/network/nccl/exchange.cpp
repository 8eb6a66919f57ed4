#include <algorithm>

#include "sim/network/nccl/times.h"

namespace longhaul {
namespace {

constexpr double kNvlinkChunk = 512.0 * 1024;   // bytes a channel over NVLink (NCCL_P2P_NVL_CHUNKSIZE)
constexpr double kNetworkChunk = 128.0 * 1024;  // in a communicator of several domains (NCCL_P2P_NET_CHUNKSIZE)

// us that the exchange's bytes inside a domain need at `rate` GB/s of a GPU's links: behind a switch all of them share
// the rate, between pairs each message has its pair's share.
double link_us(const NcclMachine& machine, const NcclExchange& exchange, double rate) {
  if (machine.nvswitch || machine.gpus_per_domain < 2) return microseconds(exchange.near_bytes, rate);
  return microseconds(exchange.near_message, rate / (machine.gpus_per_domain - 1));
}

// LL sends as many flags as data.
Parts near_ll(const NcclConstants& constants, const NcclMachine& machine, const NcclExchange& exchange, int channels) {
  const double block = microseconds(exchange.near_message / channels, constants.of(machine.gpu, GpuTerm::kP2pLlRate));
  return {0, std::max(block, 2 * link_us(machine, exchange, machine.nvlink_rate))};
}

// Messages inside a domain. A channel copies its part in chunks into the receiver's buffer, from where the receiver
// copies it out: the first chunk is only sent, the last one only received, those between do both at once. The busiest
// message sets the pace of a channel, all of a rank's bytes that of its links.
Parts near_simple(const NcclConstants& constants, const NcclMachine& machine, const NcclExchange& exchange,
                  int channels) {
  const auto gpu = [&](GpuTerm term) { return constants.of(machine.gpu, term); };
  const double part = exchange.near_message / channels;
  if (part <= 0) return {};
  const double chunk = std::min(part, exchange.domains > 1 ? kNetworkChunk : kNvlinkChunk);
  const double first = chunk / part;
  const double passes = gpu(GpuTerm::kP2pMemoryPasses) / machine.memory_rate;
  const double both_link = 1 / (1 / (gpu(GpuTerm::kP2pEfficiency) * machine.nvlink_rate) + passes);
  const double alone = gpu(GpuTerm::kP2pAloneRate);
  const double sent = std::max(microseconds(chunk, alone), first * link_us(machine, exchange, machine.nvlink_rate));
  const double through = std::max(microseconds(part - chunk, gpu(GpuTerm::kP2pBothShare) * alone),
                                  (1 - first) * link_us(machine, exchange, both_link));
  return {microseconds(chunk, alone), sent + through};
}

}  // namespace

NcclTime nccl_time(const NcclConstants& constants, const NcclMachine& machine, const NcclExchange& exchange) {
  const auto gpu = [&](GpuTerm term) { return constants.of(machine.gpu, term); };
  const double message = std::max(exchange.near_message, exchange.far_message);
  NcclTime time;
  time.algorithm = NcclAlgorithm::kDirect;
  const P2pPlan plan = p2p_plan(machine, exchange.ranks, exchange.domains, message);
  time.channels = plan.channels;
  time.protocol = plan.ll ? NcclProtocol::kLl : NcclProtocol::kSimple;
  const double peers = std::max(0, exchange.near_peers + exchange.far_peers - 1);
  const double begin = gpu(GpuTerm::kStart) + peers * gpu(GpuTerm::kP2pPeer);
  Parts near;
  if (exchange.near_peers > 0) {
    near = plan.ll ? near_ll(constants, machine, exchange, time.channels)
                   : near_simple(constants, machine, exchange, time.channels);
    near.fixed_us += gpu(plan.ll ? GpuTerm::kP2pLl : GpuTerm::kP2pSimple);
  }
  Parts far;
  if (exchange.far_peers > 0) {
    const auto network = [&](NetworkTerm term) { return constants.of(machine.network, term); };
    // Many peers at once collide on the NICs; one peer's messages go as those of a ring do.
    const double efficiency = network(exchange.far_peers > 1 ? NetworkTerm::kP2pEfficiency : NetworkTerm::kEfficiency);
    // No table times short sends between domains: they start and hop as the steps of rings and trees do, which are
    // fitted (Simple's hop has the flush in it).
    far.fixed_us = plan.ll ? gpu(GpuTerm::kP2pLl) + network(NetworkTerm::kLlHop)
                           : network(NetworkTerm::kSimpleStart) + network(NetworkTerm::kSimpleHop);
    far.bytes_us = microseconds(exchange.far_bytes, efficiency * machine.nic_rate);
  }
  time.fixed_us = begin + std::max(near.fixed_us, far.fixed_us);
  time.bytes_us = std::max(near.bytes_us, far.bytes_us);
  return time;
}

}  // namespace longhaul
