// From a DCP plan to what each rank casts and computes in each division.
#pragma once

#include <vector>

#include "sim/strategies/context_parallel/dcp.h"
#include "sim/strategies/step/blocks.h"

namespace longhaul {

// By rank. `divisions` >= 1, without the local one. A rank's key blocks of other ranks come in order of owner and row,
// dealt to divisions so that its own queries' work on them is about even; queries of other ranks, most work first, go
// to the division with least work among those that have their keys.
std::vector<BlockShape> dcp_shapes(const DcpPlan& plan, int divisions);

}  // namespace longhaul
