// Block-diffusion plans as JSON, for `longhaul plan`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "sim/strategies/block_diffusion/plan.h"

namespace longhaul {

// Totals, then per rank: noisy and clean shards, tokens, padding and pairs. Bytes: sent by one rank in one layer's
// forward gather with K/V of `kv_width` elements.
nlohmann::ordered_json plan_json(const BdPlan& plan, std::int64_t kv_width, std::int64_t bytes_per_element);

}  // namespace longhaul
