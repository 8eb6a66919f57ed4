// The option `copies` of a strategy's entry: whether what an eager framework copies around attention is charged.
#pragma once

#include <optional>
#include <string>

#include "sim/core/json.h"
#include "sim/strategies/strategy.h"

namespace longhaul {

// "fused" (the default) or "framework".
bool framework_copies(const StrategyRequest& request);
std::optional<std::string> check_copies(JsonReader& reader);

}  // namespace longhaul
