// What each family folder adds to the registry.
#pragma once

#include <vector>

#include "sim/strategies/strategy.h"

namespace longhaul {

void add_sequence_parallel_strategies(std::vector<Strategy>& list);  // data-parallel, ulysses, basp

}  // namespace longhaul
