// The step of a strategy whose group passes keys and values round a ring.
#pragma once

#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/step/ring.h"

namespace longhaul {

// `planner` deals a sequence's documents to the ranks, equal rows on each.
Planned plan_ring_step(const StrategyRequest& request, const SequencePlanner& planner, RingFlavor flavor);

}  // namespace longhaul
