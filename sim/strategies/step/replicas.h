// How strategies without a pipeline lay a step over the ranks: dp replicas of `size` contiguous ranks each,
// micro-batches of whole sequences, the same chunks of program on every rank.
#pragma once

#include <span>
#include <vector>

#include "sim/strategies/step/step.h"
#include "sim/strategies/strategy.h"

namespace longhaul {

// Sequences of micro-batch `chunk` of replica `replica`: consecutive, `per_micro_batch` each, chunk-major so that
// replica r of chunk c takes sequences (c x dp + r) x m .. + m - 1.
std::vector<std::int32_t> micro_batch(int chunk, int replica, int replicas, std::int64_t per_micro_batch);

// Number of micro-batches that each replica runs.
int micro_batch_count(const Batch& batch, int replicas, std::int64_t per_micro_batch);

// Adds one program for all ranks (every chunk in order, then the optimizer), one zero group of all ranks and a RankInfo
// a rank with its zero group; `roles` group ids of other roles are filled in by the caller, shapes too.
void add_replica_ranks(ScheduleBuilder& builder, const StepBuilder& step, const ModelShape& model, int ranks,
                       int chunks);

// Of a step without stages, whose ranks all share one ZeRO group.
StepOptions unstaged_options(const StrategyRequest& request, int chunks);

}  // namespace longhaul
