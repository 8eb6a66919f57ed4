#include <algorithm>

#include "sim/network/nccl/times.h"

namespace longhaul {
namespace {

constexpr double kLlThreadBytes = 4096;  // 512 threads of 8 bytes
constexpr double kLlPayload = 0.5;       // half of every LL line is flags
constexpr double kBroadcastChunk = 512.0 * 1024;
constexpr double kChunk = 2.0 * 1024 * 1024;  // bytes a channel and step, Simple

double steps_of(const NcclCall& call) {
  switch (call.collective) {
    case NcclCollective::kAllReduce:
      return 2.0 * (call.ranks - 1);
    default:
      return call.ranks - 1;
  }
}

bool broadcasts(const NcclCall& call) { return call.collective == NcclCollective::kBroadcast; }

// Shares of S / n that cross a rank's link.
double shares_of(const NcclCall& call) {
  if (call.collective == NcclCollective::kBroadcast) return call.ranks;
  return steps_of(call);
}

// Steps in which a rank writes to the user's buffer beside passing on.
double copy_steps_of(const NcclCall& call) {
  return call.collective == NcclCollective::kReduceScatter ? 0 : call.ranks - 1;
}

// Shares of S / n that the copies from and to the user's buffers cost. A broadcast's ranks copy while they forward.
double copy_parts(const NcclCase& c) {
  switch (c.call.collective) {
    case NcclCollective::kAllReduce:
      return c.gpu(GpuTerm::kReduceCopy);
    case NcclCollective::kReduceScatter:
      return c.gpu(GpuTerm::kScatterCopy);
    case NcclCollective::kBroadcast:
      return 0;
    default:
      return c.gpu(GpuTerm::kGatherCopy);
  }
}

double microseconds(double bytes, double rate) { return bytes / (1000 * rate); }

}  // namespace

Parts ring_ll(const NcclCase& c, int channels) {
  const double n = c.call.ranks;
  const double steps = steps_of(c.call);
  const double part = c.call.bytes / (n * channels);
  const double ramp = (c.gpu(GpuTerm::kLlRamp) + copy_steps_of(c.call) * c.gpu(GpuTerm::kLlCopyStep)) *
                          std::min(1.0, part / kLlThreadBytes) +
                      (channels > 1 ? c.gpu(GpuTerm::kLlBlocks) : 0);
  const double one = microseconds(c.call.bytes / n, kLlPayload * c.graph.nvlink_rate);
  const double shown = std::max(0.0, one - c.gpu(GpuTerm::kLlHidden));
  const double link = shares_of(c.call) * shown + (broadcasts(c.call) ? 0 : c.gpu(GpuTerm::kLlCopy)) * one;
  return {c.gpu(GpuTerm::kStart) + steps * c.gpu(GpuTerm::kLlStep) + ramp, link};
}

Parts ring_ll128(const NcclCase& c, int channels) {
  static_cast<void>(channels);
  const double n = c.call.ranks;
  const double steps = steps_of(c.call);
  const double shares = shares_of(c.call) + copy_parts(c);
  return {c.gpu(GpuTerm::kStart) + c.gpu(GpuTerm::kLl128Start) + steps * c.gpu(GpuTerm::kLl128Step),
          microseconds(c.call.bytes / n * shares, c.gpu(GpuTerm::kLl128Efficiency) * c.graph.nvlink_rate)};
}

Parts ring_simple(const NcclCase& c, int channels) {
  const double n = c.call.ranks;
  const double steps = steps_of(c.call);
  const double rate = c.graph.nvlink_rate;
  const double share = c.call.bytes / n;
  const double fixed = c.gpu(GpuTerm::kStart) + c.gpu(GpuTerm::kSimpleStart) + steps * c.gpu(GpuTerm::kSimpleStep);
  if (broadcasts(c.call)) {
    // A pipeline of chunks: each rank between the root and the last stores a chunk before it forwards it.
    const double chunk = std::min(c.call.bytes / channels, kBroadcastChunk);
    const double forward = (n - 2) * microseconds(chunk, c.gpu(GpuTerm::kP2pAloneRate));
    return {fixed + forward, microseconds(c.call.bytes, rate)};
  }
  const double first = std::min(share, kChunk * channels) * c.gpu(GpuTerm::kSimpleLockstep);
  const double bytes = share * (shares_of(c.call) + copy_parts(c)) + first;
  return {fixed, microseconds(bytes, rate)};
}

Parts nvls(const NcclCase& c) {
  const double n = c.call.ranks;
  const double chunk = nvls_chunk(c.machine, c.graph, c.call, NcclAlgorithm::kNvls);
  const double loop = chunk * c.graph.nvls_heads * c.graph.nvls_channels;
  const double loops = std::max(1.0, c.call.bytes / loop);
  const double fill = c.gpu(GpuTerm::kNvlsFill);
  const double rate = c.gpu(GpuTerm::kNvlsEfficiency) * c.graph.nvlink_rate;
  const double one = microseconds(loop * 2 * (n - 1) / n, rate);
  return {c.gpu(GpuTerm::kStart) + c.gpu(GpuTerm::kNvlsStart) + (loops + fill) * c.gpu(GpuTerm::kNvlsSync) + fill * one,
          loops * one};
}

}  // namespace longhaul
