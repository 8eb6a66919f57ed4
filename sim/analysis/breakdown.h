// Where the time of a step went: parts that sum exactly, and what bounds the step.
//
// Units: Time (integer picoseconds). The split of a step is that of the rank that ends last (architecture.md, Terms),
// so `tail` is zero there; the splits of other ranks may have one. Ignores: the critical path through other ranks: a
// wait counts as what that rank saw, not as what it waited for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "sim/cluster/cluster.h"
#include "sim/network/nccl_residuals.h"
#include "sim/timeline/timeline.h"

namespace longhaul {

enum class TimePart : std::uint8_t {
  kCompute,    // forward and backward kernels
  kRecompute,  // kernels of recomputed layers
  kOptimizer,
  kContention,  // what the kernels of all three take longer beside communication, host copies and each other
  kExposedCommunication,
  kBubble,
  kImbalance,
  kLaunch,
  kTail,
  kCount,
};
inline constexpr int kTimePartCount = static_cast<int>(TimePart::kCount);
// "compute", "recompute", "optimizer", "contention", "exposed_communication", "bubble", "imbalance", "launch", "tail".
const char* to_string(TimePart part);

struct TimeSplit {
  std::array<Time, kTimePartCount> parts{};
  Time& operator[](TimePart part) { return parts[static_cast<std::size_t>(part)]; }
  Time operator[](TimePart part) const { return parts[static_cast<std::size_t>(part)]; }
  Time sum() const;
};

// The parts of one rank; they sum to the step time.
TimeSplit split_time(const RankTotals& rank);

// Forward and backward compute by what the kernels are limited by; sums to TimePart::kCompute.
struct ComputeSplit {
  Time attention;
  Time gemm;
  Time memory;  // element-wise, merges of partial results, copies in the device
};
ComputeSplit split_compute(const RankTotals& rank);

// The one thing that takes the most of the step on `rank`. Candidates, the first of equal ones: "compute: attention",
// "compute: gemm", "memory traffic" (element-wise kernels, merges, copies, optimizer), "recompute", "contention",
// "exposed communication between nodes" or "inside a node", "bubble", "imbalance", "launch". Exposed communication
// counts whole, for the side of the busiest link of the run.
std::string bound_by(const RankTotals& rank, bool network_is_busiest);

// Whether the link that would need longest for what it carried in the whole run (bytes over bandwidth, over all links:
// a rank may wait for a hop that others send) is one between nodes; of equal ones too. Between nodes are NICs, leaves
// and the PCIe links to NICs, which carry nothing else. Ignores when a link was busy: one that works behind compute
// counts as well. `link_bytes` by link of the cluster, as in Totals; empty (a network without links) is false.
bool network_is_busiest(std::span<const std::int64_t> link_bytes, const Cluster& cluster);

// Nine in ten measured calls of the kind that this run made lie within this part of their prediction
// (topologies/nccl-residuals.json): by whether the busiest link is between nodes, by the network, and by the mean bytes
// that a rank sends in a call. The mean is over all ranks, members or not, so it is on the small side, where the
// classes are wider.
double collective_half_width(const Totals& totals, const Cluster& cluster, const NcclResiduals& residuals);

}  // namespace longhaul
