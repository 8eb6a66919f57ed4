#include "sim/strategies/block_diffusion/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/plan.h"
#include "sim/strategies/context_parallel/refusal.h"

namespace longhaul {
namespace {

std::int64_t block_count(std::int64_t tokens, std::int64_t block_tokens) { return ceil_div(tokens, block_tokens); }

Shard block_shard(const PlannedDocument& document, std::int64_t block, std::int64_t block_tokens) {
  const std::int64_t first = block * block_tokens;
  return {document.document, first, std::min(block_tokens, document.tokens - first), document.tokens};
}

// Rows that a rank has so far, for the greedy joint assignment.
struct Load {
  std::int64_t pairs = 0;
  std::int64_t rows = 0;
  std::size_t rank = 0;
  bool operator>(const Load& other) const {
    return std::tie(pairs, rows, rank) > std::tie(other.pairs, other.rows, other.rank);
  }
};

// The blocks of all documents together, most pairs first, each to the rank with the fewest pairs so far.
void assign_jointly(BdPlan& plan, std::vector<Shard> blocks) {
  const auto pairs = [&](const Shard& block) { return noisy_shard_pairs(block, plan.block_tokens).total(); };
  std::stable_sort(blocks.begin(), blocks.end(), [&](const Shard& a, const Shard& b) { return pairs(a) > pairs(b); });
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) least.push({0, 0, rank});
  for (const Shard& block : blocks) {
    Load load = least.top();
    least.pop();
    plan.ranks[load.rank].noisy.push_back(block);
    load.pairs += pairs(block);
    load.rows += block.tokens;
    least.push(load);
  }
}

void assign_paired(BdPlan& plan, const PlannedDocument& document) {
  const auto owned =
      dual_end_blocks(block_count(document.tokens, plan.block_tokens), static_cast<std::int64_t>(plan.ranks.size()));
  for (std::size_t rank = 0; rank < owned.size(); ++rank) {
    for (const std::int64_t block : owned[rank]) {
      plan.ranks[rank].noisy.push_back(block_shard(document, block, plan.block_tokens));
    }
  }
}

void assign_noisy(BdPlan& plan, std::span<const PlannedDocument> documents) {
  const auto both_ends = static_cast<std::int64_t>(2 * plan.ranks.size());
  if (documents.size() == 1) {
    assign_paired(plan, documents[0]);
    return;
  }
  std::vector<Shard> joint;
  for (const PlannedDocument& document : documents) {
    const std::int64_t blocks = block_count(document.tokens, plan.block_tokens);
    if (blocks % both_ends == 0) {
      assign_paired(plan, document);
      continue;
    }
    for (std::int64_t block = 0; block < blocks; ++block) {
      joint.push_back(block_shard(document, block, plan.block_tokens));
    }
  }
  assign_jointly(plan, std::move(joint));
}

// Rank r's rows of one block: offsets [r w, (r+1) w) and the mirrored tail with w = rows / 2P, or [r w, (r+1) w) with
// w = rows / P. Offsets past the block's end are padding.
void append_offsets(std::vector<Shard>& rows, const Shard& block, std::int64_t first, std::int64_t count) {
  const std::int64_t real = std::clamp<std::int64_t>(block.tokens - first, 0, count);
  if (real > 0) rows.push_back({block.document, block.prefix + first, real, block.document_tokens});
  append_shard(rows, padding_shard(count - real));
}

void assign_offsets(BdPlan& plan, const Shard& block, bool mirrored) {
  const auto ranks = static_cast<std::int64_t>(plan.ranks.size());
  const std::int64_t parts = mirrored ? 2 * ranks : ranks;
  const std::int64_t width = ceil_div(block.tokens, parts);
  plan.noisy_rows_per_rank += mirrored ? 2 * width : width;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<Shard>& noisy = plan.ranks[static_cast<std::size_t>(rank)].noisy;
    append_offsets(noisy, block, rank * width, width);
    if (mirrored) append_offsets(noisy, block, (parts - 1 - rank) * width, width);
  }
}

std::optional<std::string> refusal(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                   std::int64_t block_tokens) {
  if (block_tokens < 1) return fmt::format("blocks need at least 1 token, not {}", block_tokens);
  return cp_refusal(documents, ranks);
}

}  // namespace

std::vector<std::vector<std::int64_t>> dual_end_blocks(std::int64_t blocks, std::int64_t ranks) {
  LH_ASSERT(blocks >= 0 && ranks >= 1, "{} blocks on {} ranks", blocks, ranks);
  std::vector<std::vector<std::int64_t>> owned(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> cost(owned.size(), 0);
  const auto give = [&](std::size_t rank, std::int64_t block) {
    owned[rank].push_back(block);
    cost[rank] += block;
  };
  // The rank of least prefix cost; fewest blocks, then the lowest rank among equals, so that block 0, which costs
  // nothing, goes to an idle rank where there is one.
  const auto lightest = [&] {
    std::size_t best = 0;
    for (std::size_t rank = 1; rank < owned.size(); ++rank) {
      if (std::pair(cost[rank], owned[rank].size()) < std::pair(cost[best], owned[best].size())) best = rank;
    }
    return best;
  };
  const std::int64_t pairs = blocks / 2;
  if (pairs < ranks) {
    for (std::int64_t block = blocks - 1; block >= 0; --block) give(lightest(), block);
    return owned;
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (std::int64_t i = rank * pairs / ranks; i < (rank + 1) * pairs / ranks; ++i) {
      give(static_cast<std::size_t>(rank), i);
      give(static_cast<std::size_t>(rank), blocks - 1 - i);
    }
  }
  if (blocks % 2 == 1) give(lightest(), blocks / 2);
  return owned;
}

tl::expected<BdPlan, std::string> plan_csbp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                            std::int64_t block_tokens) {
  if (auto reason = refusal(documents, ranks, block_tokens)) return tl::unexpected(*reason);
  auto clean = plan_per_doc_cp(documents, ranks);
  LH_ASSERT(clean.has_value(), "no clean shards: {}", clean.error());
  BdPlan plan;
  plan.block_tokens = block_tokens;
  plan.clean_rows_per_rank = clean->padded_tokens_per_rank;
  plan.ranks.resize(static_cast<std::size_t>(ranks));
  assign_noisy(plan, documents);
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    std::int64_t rows = 0;
    for (const Shard& shard : plan.ranks[rank].noisy) rows += shard.tokens;
    plan.noisy_rows_per_rank = std::max(plan.noisy_rows_per_rank, rows);
    plan.ranks[rank].clean = std::move(clean->ranks[rank]);
  }
  return plan;
}

tl::expected<BdPlan, std::string> plan_bd_offset_cp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                    std::int64_t block_tokens) {
  if (auto reason = refusal(documents, ranks, block_tokens)) return tl::unexpected(*reason);
  if (block_tokens % ranks != 0) {
    return tl::unexpected(fmt::format("the {} ranks do not divide the block of {} tokens", ranks, block_tokens));
  }
  auto clean = plan_contiguous_cp(documents, ranks);
  LH_ASSERT(clean.has_value(), "no clean shards: {}", clean.error());
  BdPlan plan;
  plan.block_tokens = block_tokens;
  plan.clean_rows_per_rank = clean->padded_tokens_per_rank;
  plan.gathers_noisy = true;
  plan.ranks.resize(static_cast<std::size_t>(ranks));
  const bool mirrored = block_tokens / ranks % 2 == 0;
  for (const PlannedDocument& document : documents) {
    const std::int64_t blocks = block_count(document.tokens, block_tokens);
    for (std::int64_t block = 0; block < blocks; ++block) {
      assign_offsets(plan, block_shard(document, block, block_tokens), mirrored);
    }
  }
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) plan.ranks[rank].clean = std::move(clean->ranks[rank]);
  return plan;
}

}  // namespace longhaul
