#include "sim/strategies/context_parallel/plan_json.h"

#include <nlohmann/json.hpp>

namespace longhaul {

nlohmann::ordered_json shards_json(const std::vector<Shard>& shards) {
  auto list = nlohmann::ordered_json::array();
  for (const Shard& shard : shards) {
    if (shard.is_padding()) {
      list.push_back({{"padding", shard.tokens}});
    } else {
      list.push_back({{"document", shard.document}, {"first_token", shard.prefix}, {"tokens", shard.tokens}});
    }
  }
  return list;
}

nlohmann::ordered_json plan_json(const CpPlan& plan, std::int64_t gathered_rows, std::int64_t kv_width,
                                 std::int64_t bytes_per_element) {
  const CpLoads loads = cp_loads(plan);
  auto ranks = nlohmann::ordered_json::array();
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const CpRankLoad& load = loads.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"tokens", load.tokens},
                     {"padding", load.padding},
                     {"pairs", load.pairs},
                     {"nonlast_tokens", load.nonlast},
                     {"needed_tokens", load.need},
                     {"shards", shards_json(plan.ranks[rank])}});
  }
  return {
      {"ranks", plan.rank_count()},
      {"rows_per_rank", plan.padded_tokens_per_rank},
      {"tokens", loads.tokens},
      {"padding", loads.padding},
      {"pairs", loads.pairs},
      {"pairs_max", loads.pairs_max},
      {"imbalance", loads.imbalance},
      {"shards", loads.shards},
      {"gathered_rows_per_rank", gathered_rows},
      {"gather_bytes_per_rank_layer", kv_gather_bytes(gathered_rows, plan.rank_count(), kv_width, bytes_per_element)},
      {"per_doc_documents", plan.per_doc_documents},
      {"per_rank", ranks}};
}

}  // namespace longhaul
