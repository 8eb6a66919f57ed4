#include "sim/strategies/block_diffusion/plan_json.h"

#include <nlohmann/json.hpp>

#include "sim/strategies/context_parallel/plan_json.h"

namespace longhaul {

nlohmann::ordered_json plan_json(const BdPlan& plan, std::int64_t kv_width, std::int64_t bytes_per_element) {
  const BdLoads loads = bd_loads(plan);
  // Forward and backward without recompute are two equal transfers.
  const std::int64_t bytes = bd_sent_bytes(plan, kv_width, bytes_per_element, false) / 2;
  auto ranks = nlohmann::ordered_json::array();
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const BdRankLoad& load = loads.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"noisy_tokens", load.noisy_tokens},
                     {"clean_tokens", load.clean_tokens},
                     {"padding", load.padding},
                     {"pairs", load.pairs.total()},
                     {"noisy", shards_json(plan.ranks[rank].noisy)},
                     {"clean", shards_json(plan.ranks[rank].clean)}});
  }
  return {{"ranks", plan.ranks.size()},
          {"block_tokens", plan.block_tokens},
          {"clean_rows_per_rank", plan.clean_rows_per_rank},
          {"noisy_rows_per_rank", plan.noisy_rows_per_rank},
          {"pairs",
           {{"noisy_local", loads.pairs.noisy_local},
            {"noisy_to_clean", loads.pairs.noisy_clean},
            {"clean", loads.pairs.clean},
            {"total", loads.pairs.total()}}},
          {"pairs_max", loads.pairs_max},
          {"imbalance", loads.imbalance},
          {"gather_bytes_per_rank_layer", bytes},
          {"per_rank", ranks}};
}

}  // namespace longhaul
