// Local search on a small context-parallel plan: exchanges of equal numbers of tokens between two ranks.
//
// The candidates of FlashCP's search cut the longest documents over all ranks and a few others once. On small sequences
// a plan that no candidate names can be a tenth faster; this finds most of it (tests/oracle/study). Deterministic: the
// best exchange of each pair of ranks in turn, the earlier of equals.
#pragma once

#include "sim/strategies/context_parallel/flashcp.h"

namespace longhaul {

// Sequences of more shards than this stay as they are: the search tries all pairs of shards.
constexpr std::int64_t kMostRefinedShards = 32;

// Takes, for each pair of ranks in turn, the exchange of two pieces (heads or tails of shards, or whole ones) that
// lowers the score most, until none does or `most_trials` plans were scored; of the score and small weights for even
// pairs and sent tokens, which lead over ties. Imbalance above `imbalance_limit` never grows and is brought down first;
// the plan seen with least of it, then of least score, is the result. `documents`: in packing order. Every rank keeps
// its number of tokens.
CpPlan refine_plan(CpPlan plan, std::span<const PlannedDocument> documents, double imbalance_limit,
                   std::int64_t most_trials, const CpScore& score);

}  // namespace longhaul
