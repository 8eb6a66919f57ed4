// What the simulator predicts for one schedule, op by op, in the terms in which a run is measured.
//
// A kernel's prediction is its time alone on the device (KernelDurations), with the ends of its 90 % interval; a
// collective's is its time in the simulated timeline from the call of the last member to the end, held up by kernels or
// not (as op_pairs.h measures it), without an interval of its own. Units: Time, bytes. Invariant: one PredictedOp for
// each op that is not empty, by rank, then position in the rank's program (empty ops counted), as RunRecord has them.
// Ignores: what was measured.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/cost/estimate.h"
#include "sim/study/setup.h"
#include "sim/timeline/timeline.h"

namespace longhaul {

struct PredictedOp {
  std::int32_t rank = 0;
  std::int32_t position = 0;
  StreamId stream = kComputeStream;
  OpKind kind = OpKind::kElementwise;
  Pass pass = Pass::kForward;
  SegmentId segment = 0;
  std::int16_t index = 0;
  std::int16_t layer = 0;
  std::int32_t chunk = 0;
  GroupId group = -1;
  std::string label;
  std::string shape;        // "4096 x 6144 x 4096", "12 pieces, 3.4e+08 pairs, 32/8 heads of 128", "33554432 B"
  std::string shape_class;  // by the power of two of the work: "gemm of 2^37 FLOP", "attention of 2^28 pairs"
  KernelKind kernel = KernelKind::kElementwise;
  Time time, low, high;  // alone; a collective: from its call, low = time = high
  Basis basis = Basis::kDatasheet;
  Time start, end;  // in the simulated timeline
};

struct Prediction {
  std::shared_ptr<const Schedule> schedule;
  Totals totals;
  Time step_low, step_high;  // 90 %, of the whole step
  std::vector<PredictedOp> ops;
  std::vector<Time> rank_alone;  // by rank: rank_alone.h with predicted kernel times
  // By rank: the block that a static plan needs for the schedule's tensors when streams run as freely as their events
  // allow (validate/device/arena_plan.h); the simulated peak is of one order in time.
  std::vector<std::int64_t> block_bytes;
  std::vector<std::int64_t> communicator_bytes;  // by rank: what NCCL holds there if each rank has a GPU of its own
  RecordedTimeline timeline;                     // all ranks
  std::vector<std::string> streams;
  std::int64_t memory_limit_bytes = 0;
  double collective_half_width = 0;  // relative, 90 %, of transfers
};

// "compute", "copy-in", "copy-out", then the group roles.
std::vector<std::string> stream_names(const Schedule& schedule);

// Simulates every rank of `planned` (folds are undone). At most kMostPredictedOps ops, else LimitError: op-by-op
// comparison is for what one machine runs.
inline constexpr std::int64_t kMostPredictedOps = 2'000'000;
Prediction predict_run(const CaseSetup& setup, const PlannedStep& planned);

}  // namespace longhaul
