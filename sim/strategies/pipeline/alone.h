// A pipeline alone: exact start and end of every operation from fixed durations (max-plus, integer picoseconds).
//
// Models: one serial lane a stage that runs its list in order; a pure latency on every edge between stages; the slice
// dependencies of order.h. Ignores: memory limits, links shared by transfers, anything besides the pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/core/sim_time.h"
#include "sim/strategies/pipeline/order.h"

namespace longhaul {

// Durations of each (stage, chunk). Index: stage * chunks + chunk.
struct PipelineTimes {
  std::vector<Time> forward;
  std::vector<Time> backward;  // input and weight gradients, and recompute if any
  Time p2p;                    // latency between neighbour stages, each direction

  // The same durations on every stage: `forward[chunk]`, `backward[chunk]`.
  static PipelineTimes same_on_all_stages(std::int32_t stages, const std::vector<Time>& forward,
                                          const std::vector<Time>& backward, Time p2p);
};

struct PipelineSpan {
  Time start;
  Time end;
};

struct PipelineRun {
  Time makespan;                                 // end of the last op; the first starts at 0
  std::vector<std::vector<PipelineSpan>> spans;  // [stage][position in the stage's list]
  std::vector<Time> busy;                        // [stage] sum of its durations
};

// Runs `order`. Durations are not negative. An order that waits for itself is a bug of its builder (LH_ASSERT).
PipelineRun run_pipeline_alone(const PipelineOrder& order, const PipelineTimes& times);

// The makespan only, without keeping spans: for planners that try many orders.
Time pipeline_makespan(const PipelineOrder& order, const PipelineTimes& times);

}  // namespace longhaul
