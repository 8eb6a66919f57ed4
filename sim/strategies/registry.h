// The strategies that are built. A name that is not here is unknown, never a silent stand-in.
#pragma once

#include <string>
#include <vector>

#include "sim/strategies/strategy.h"

namespace longhaul {

const std::vector<Strategy>& strategies();
// nullptr if there is none of that name.
const Strategy* find_strategy(const std::string& name);
std::vector<std::string> strategy_names();

}  // namespace longhaul
