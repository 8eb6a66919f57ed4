#include <algorithm>

#include "sim/network/nccl/times.h"

namespace longhaul {
namespace {

constexpr double kChunk = 512.0 * 1024;  // bytes a channel over NVLink (NCCL_P2P_NVL_CHUNKSIZE)

double microseconds(double bytes, double rate) { return bytes / (1000 * rate); }

struct NearPart {
  double ll_us = 0;
  Parts simple;
};

// Messages inside a domain. A channel copies its part in chunks into the receiver's buffer, from where the receiver
// copies it out: the first chunk is only sent, the last one only received, those between do both at once.
Parts near_simple(const NcclConstants& constants, const NcclMachine& machine, const NcclExchange& exchange,
                  int channels) {
  const auto gpu = [&](GpuTerm term) { return constants.of(machine.gpu, term); };
  const double part = exchange.near_message / channels;
  const double chunk = std::min(part, kChunk);
  const double lanes = static_cast<double>(channels) * exchange.near_peers;
  double nvlink = machine.nvlink_rate;
  if (!machine.nvswitch && machine.gpus_per_domain > 1) {
    nvlink = machine.nvlink_rate * exchange.near_peers / (machine.gpus_per_domain - 1);
  }
  const double passes = gpu(GpuTerm::kP2pMemoryPasses) / machine.memory_rate;
  const double both_link = 1 / (1 / (gpu(GpuTerm::kP2pEfficiency) * nvlink) + passes);
  const double alone = gpu(GpuTerm::kP2pAloneRate);
  const double sending = std::min(alone, nvlink / lanes);
  const double both = std::min(gpu(GpuTerm::kP2pBothShare) * alone, both_link / lanes);
  const double through = microseconds(part - chunk, both);
  return {microseconds(chunk, alone), microseconds(chunk, sending) + through};
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
    near = time.protocol == NcclProtocol::kLl
               ? Parts{0, microseconds(exchange.near_message / time.channels, gpu(GpuTerm::kP2pLlRate))}
               : near_simple(constants, machine, exchange, time.channels);
  }
  Parts far;
  if (exchange.far_peers > 0) {
    const auto network = [&](NetworkTerm term) { return constants.of(machine.network, term); };
    // Many peers at once collide on the NICs; one peer's messages go as those of a ring do.
    const double efficiency = network(exchange.far_peers > 1 ? NetworkTerm::kP2pEfficiency : NetworkTerm::kEfficiency);
    far.fixed_us = network(NetworkTerm::kP2pHop);
    far.bytes_us = microseconds(exchange.far_bytes, efficiency * machine.nic_rate);
  }
  time.fixed_us = begin + (time.protocol == NcclProtocol::kLl ? gpu(GpuTerm::kP2pLl) : gpu(GpuTerm::kP2pSimple)) +
                  std::max(near.fixed_us, far.fixed_us);
  time.bytes_us = std::max(near.bytes_us, far.bytes_us);
  return time;
}

}  // namespace longhaul
