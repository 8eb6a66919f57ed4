#include <algorithm>
#include <cmath>

#include "sim/network/nccl/times.h"

namespace longhaul {
namespace {

constexpr double kLlThreadBytes = 4096;  // 512 threads of 8 bytes
constexpr double kBroadcastChunk = 512.0 * 1024;
constexpr double kSimpleChunk = 2.0 * 1024 * 1024;  // bytes a channel and step, Simple
constexpr double kShortestNvlsChunk = 16.0 * 1024;
constexpr int kNvlsHeadsMeasured = 8;

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

// All channels begin together, so the link is idle while all copy. From loop to loop they drift apart as random walks
// do, by the square root of the loops: the idle part of loop x is lockstep / sqrt(1 + x / drift), summed over the loops
// that a share makes of `loop` bytes.
double lockstep_bytes(const NcclCase& c, double share, double loop) {
  if (share <= 0) return 0;
  const double drift = c.gpu(GpuTerm::kSimpleDrift);
  const double idle_loops = 2 * share / (1 + std::sqrt(1 + share / (loop * drift)));
  return c.gpu(GpuTerm::kSimpleLockstep) * idle_loops;
}

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
  const double lockstep = broadcasts(c.call) ? 0 : c.gpu(GpuTerm::kSimpleLockstep);  // too short to drift apart
  const double shares = shares_of(c.call) + copy_parts(c) + lockstep;
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
  const double bytes = share * (shares_of(c.call) + copy_parts(c)) + lockstep_bytes(c, share, kSimpleChunk * channels);
  return {fixed, microseconds(bytes, rate)};
}

// All-reduce: members copy in, each head reduces its part over all members and multicasts the result, members copy out;
// a GPU's link carries (1 + 1/n) S each way (rated by a ring's 2(n-1)/n S, as NCCL does), and a chunk is handed over
// twice. All-gather multicasts alone and reduce-scatter reduces alone: S the one way, S/n the other, one hand-over, a
// pipeline half as long. Handing over short chunks takes a time of its own whatever they hold: Azure's table of eight
// H100 stays at 42 us from 64 KiB to 1 MiB, which is a loop of the shortest chunks of eight heads. More heads (32 in a
// rack of 72) are served side by side, so a short call there waits no longer than that.
Parts nvls(const NcclCase& c) {
  const double n = c.call.ranks;
  const bool reduces = c.call.collective == NcclCollective::kAllReduce;
  const double stages = reduces ? 1 : 0.5;  // of all-reduce's
  const double chunk = nvls_chunk(c.machine, c.graph, c.call, NcclAlgorithm::kNvls);
  const double whole = chunk * c.graph.nvls_heads * c.graph.nvls_channels;
  const double shortest = kShortestNvlsChunk * std::min(c.graph.nvls_heads, kNvlsHeadsMeasured) * c.graph.nvls_channels;
  const double loop = std::clamp(c.call.bytes, shortest, whole);
  const double loops = std::max(1.0, c.call.bytes / loop);
  const double fill = stages * c.gpu(GpuTerm::kNvlsFill);
  const double sync = stages * c.gpu(GpuTerm::kNvlsSync);
  const double rate = c.gpu(GpuTerm::kNvlsEfficiency) * c.graph.nvlink_rate;
  const double one = microseconds(loop * 2 * (n - 1) / n, rate) * (reduces ? 1 : n / (n + 1));
  return {c.gpu(GpuTerm::kStart) + c.gpu(GpuTerm::kNvlsStart) + (loops + fill) * sync + fill * one, loops * one};
}

}  // namespace longhaul
