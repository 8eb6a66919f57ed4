// Context-parallel plans as JSON, for `longhaul plan`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "sim/strategies/context_parallel/plan.h"

namespace longhaul {

// What a rank holds: {document, first_token, tokens} or {padding}.
nlohmann::ordered_json shards_json(const std::vector<Shard>& shards);

// Totals, then per rank: shards, tokens, padding, pairs, nonlast and needed tokens. `gathered_rows` is what one rank
// gives to one layer's all-gather of K and V (all rows for static schemes, B_max for FlashCP); bytes are those received
// by one rank in one layer's forward gather with K/V of `kv_width` elements.
nlohmann::ordered_json plan_json(const CpPlan& plan, std::int64_t gathered_rows, std::int64_t kv_width,
                                 std::int64_t bytes_per_element);

}  // namespace longhaul
