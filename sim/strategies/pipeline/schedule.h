// From a pipeline plan to a schedule.
//
// Ranks: replica-major, then stage, then member: rank = (replica pp + stage) sp + member, so that a stage lies inside a
// node where sp divides its GPUs. ZeRO 3 shards over the sp ranks of one stage of one replica (replicas run different
// numbers of chunks, so their gathers cannot meet) and gathers per chunk; shards are all-reduced over replicas once, at
// the end. ZeRO 0 all-reduces over sp x dp, at the end too.
#pragma once

#include <memory>

#include "sim/schedule/schedule.h"
#include "sim/strategies/pipeline/plan.h"
#include "sim/strategies/strategy.h"

namespace longhaul {

std::shared_ptr<const Schedule> pipeline_schedule(const StrategyRequest& request, const PipelinePlan& plan);

}  // namespace longhaul
