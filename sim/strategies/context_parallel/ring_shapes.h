// From a context-parallel plan to the steps of a ring: which pieces each rank computes on each other rank's block.
#pragma once

#include <vector>

#include "sim/strategies/context_parallel/plan.h"
#include "sim/strategies/step/ring.h"

namespace longhaul {

// By rank: step t pairs its shards with those of rank (i - t) mod N, document by document. A pair of shards is one
// piece: full where the keys stand wholly before the queries, causal where both are the same tokens; keys behind the
// queries give none. Any plan with equal rows on all ranks will do; every causal pair of the plan stands in one piece.
std::vector<std::vector<RingStepShape>> ring_shapes(const CpPlan& plan);

}  // namespace longhaul
