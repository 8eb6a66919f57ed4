// Closed forms of the block-diffusion mask (csbp.md 2.1, 2.2), with a short last block.
#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/strategies/block_diffusion/plan.h"

namespace longhaul {
namespace {

// Sum over the first `tokens` positions of a document of the end of their block: what clean queries see. Full blocks
// before the position end at multiples of b; the block of the last positions ends with the document at the latest.
std::int64_t block_end_sum(std::int64_t tokens, std::int64_t block, std::int64_t document_tokens) {
  const std::int64_t full = tokens / block;
  return block * block * (full * (full + 1) / 2) + tokens % block * std::min((full + 1) * block, document_tokens);
}

}  // namespace

BdPairs block_diffusion_pairs(std::int64_t tokens, std::int64_t block_tokens) {
  BdPairs pairs;
  const std::int64_t tail = tokens % block_tokens;
  pairs.noisy_local = (tokens - tail) * block_tokens + tail * tail;
  pairs.clean = block_end_sum(tokens, block_tokens, tokens);
  // A query sees its own block and all before it, noisy its own and clean the earlier ones: together as many as clean.
  pairs.noisy_clean = pairs.clean - pairs.noisy_local;
  return pairs;
}

BdPairs noisy_shard_pairs(const Shard& shard, std::int64_t block_tokens) {
  if (shard.is_padding() || shard.tokens == 0) return {};
  const std::int64_t start = shard.prefix / block_tokens * block_tokens;
  const std::int64_t end = std::min(start + block_tokens, shard.document_tokens);
  LH_ASSERT(shard.prefix + shard.tokens <= end, "noisy shard [{}, +{}) of document {} crosses a block border",
            shard.prefix, shard.tokens, shard.document);
  return {shard.tokens * (end - start), shard.tokens * start, 0};
}

BdPairs clean_shard_pairs(const Shard& shard, std::int64_t block_tokens) {
  if (shard.is_padding()) return {};
  return {0, 0,
          block_end_sum(shard.prefix + shard.tokens, block_tokens, shard.document_tokens) -
              block_end_sum(shard.prefix, block_tokens, shard.document_tokens)};
}

BdLoads bd_loads(const BdPlan& plan) {
  BdLoads loads;
  for (const BdRank& rank : plan.ranks) {
    BdRankLoad load;
    for (const Shard& shard : rank.noisy) {
      (shard.is_padding() ? load.padding : load.noisy_tokens) += shard.tokens;
      load.pairs += noisy_shard_pairs(shard, plan.block_tokens);
    }
    for (const Shard& shard : rank.clean) {
      (shard.is_padding() ? load.padding : load.clean_tokens) += shard.tokens;
      load.pairs += clean_shard_pairs(shard, plan.block_tokens);
    }
    loads.pairs += load.pairs;
    loads.pairs_max = std::max(loads.pairs_max, load.pairs.total());
    loads.ranks.push_back(load);
  }
  if (loads.pairs.total() > 0) {
    loads.imbalance = static_cast<double>(loads.pairs_max) * static_cast<double>(plan.ranks.size()) /
                      static_cast<double>(loads.pairs.total());
  }
  return loads;
}

std::int64_t bd_sent_bytes(const BdPlan& plan, std::int64_t kv_width, std::int64_t bytes_per_element, bool recompute) {
  const std::int64_t rows = plan.clean_rows_per_rank + (plan.gathers_noisy ? plan.noisy_rows_per_rank : 0);
  const auto peers = static_cast<std::int64_t>(plan.ranks.size()) - 1;
  return peers * 2 * rows * kv_width * bytes_per_element * (recompute ? 3 : 2);
}

}  // namespace longhaul
