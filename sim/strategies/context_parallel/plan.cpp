#include "sim/strategies/context_parallel/plan.h"

#include <algorithm>
#include <map>

#include "sim/core/invariant.h"

namespace longhaul {

CpRankLoad cp_rank_load(std::span<const Shard> shards) {
  struct Owned {
    std::int64_t tokens = 0;
    std::int64_t end = 0;
  };
  CpRankLoad load;
  std::map<DocumentId, Owned> owned;
  for (const Shard& shard : shards) {
    if (shard.is_padding()) {
      load.padding += shard.tokens;
      continue;
    }
    ++load.shards;
    load.tokens += shard.tokens;
    load.pairs += shard_pairs(shard.prefix, shard.tokens);
    if (shard.tokens == shard.document_tokens) continue;  // a whole document needs nothing
    if (!shard.is_last()) load.nonlast += shard.tokens;
    Owned& document = owned[shard.document];
    document.tokens += shard.tokens;
    document.end = std::max(document.end, shard.prefix + shard.tokens);
  }
  for (const auto& [document, part] : owned) load.need += part.end - part.tokens;
  return load;
}

CpLoads cp_loads(const CpPlan& plan) {
  CpLoads loads;
  loads.ranks.reserve(plan.ranks.size());
  for (const std::vector<Shard>& shards : plan.ranks) {
    const CpRankLoad load = cp_rank_load(shards);
    loads.tokens += load.tokens;
    loads.padding += load.padding;
    loads.shards += load.shards;
    loads.pairs += load.pairs;
    loads.pairs_max = std::max(loads.pairs_max, load.pairs);
    loads.nonlast_max = std::max(loads.nonlast_max, load.nonlast);
    loads.need_max = std::max(loads.need_max, load.need);
    loads.ranks.push_back(load);
  }
  if (loads.pairs > 0) {
    loads.imbalance = static_cast<double>(loads.pairs_max) * static_cast<double>(plan.ranks.size()) /
                      static_cast<double>(loads.pairs);
  }
  return loads;
}

std::vector<Shard> sendable_shards(std::span<const Shard> shards) {
  std::vector<Shard> sendable;
  for (const Shard& shard : shards) {
    if (!shard.is_padding() && !shard.is_last()) sendable.push_back(shard);
  }
  return sendable;
}

CpPlan concatenate(std::span<const CpPlan> plans) {
  LH_ASSERT(!plans.empty(), "no plans to concatenate");
  CpPlan joined = plans.front();
  for (const CpPlan& plan : plans.subspan(1)) {
    LH_ASSERT(plan.ranks.size() == joined.ranks.size(), "{} ranks against {}", plan.ranks.size(), joined.ranks.size());
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      joined.ranks[rank].insert(joined.ranks[rank].end(), plan.ranks[rank].begin(), plan.ranks[rank].end());
    }
    joined.padded_tokens_per_rank += plan.padded_tokens_per_rank;
    joined.per_doc_documents.insert(joined.per_doc_documents.end(), plan.per_doc_documents.begin(),
                                    plan.per_doc_documents.end());
  }
  return joined;
}

std::int64_t gather_scatter_elements(std::int64_t rows, std::int64_t ranks, std::int64_t kv_heads,
                                     std::int64_t head_dim) {
  return 4 * rows * kv_heads * head_dim * (ranks - 1);
}

std::int64_t kv_gather_bytes(std::int64_t rows, std::int64_t ranks, std::int64_t kv_width,
                             std::int64_t bytes_per_element) {
  return 2 * (ranks - 1) * rows * kv_width * bytes_per_element;
}

double attention_forward_flops(std::int64_t pairs, std::int64_t q_width) {
  return 4.0 * static_cast<double>(q_width) * static_cast<double>(pairs);
}

}  // namespace longhaul
