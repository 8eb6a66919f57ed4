#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/strategies/block_diffusion/plan.h"
#include "tests/property/strategies/cp_documents.h"

namespace longhaul {
namespace {

using Documents = std::vector<PlannedDocument>;

// Pairs of a rank, query by query and key by key, from the mask of csbp.md 2.1.
BdPairs brute_pairs(const BdRank& rank, std::int64_t b) {
  BdPairs pairs;
  const auto visit = [&](const Shard& shard, bool noisy) {
    if (shard.is_padding()) return;
    for (std::int64_t query = shard.prefix; query < shard.prefix + shard.tokens; ++query) {
      for (std::int64_t key = 0; key < shard.document_tokens; ++key) {
        const std::int64_t i = query / b, j = key / b;
        if (noisy && i == j) ++pairs.noisy_local;
        if (noisy && j < i) ++pairs.noisy_clean;
        if (!noisy && j <= i) ++pairs.clean;
      }
    }
  };
  for (const Shard& shard : rank.noisy) visit(shard, true);
  for (const Shard& shard : rank.clean) visit(shard, false);
  return pairs;
}

// Both views hold each token once; clean rows are equal; pairs are the mask's, on each rank and in all.
void check_plan(const BdPlan& plan, const Documents& documents, bool brute) {
  auto noisy = no_tokens(documents), clean = no_tokens(documents);
  const BdLoads loads = bd_loads(plan);
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    count_tokens(noisy, plan.ranks[rank].noisy);
    count_tokens(clean, plan.ranks[rank].clean);
    std::int64_t noisy_rows = 0, clean_rows = 0;
    for (const Shard& shard : plan.ranks[rank].noisy) noisy_rows += shard.tokens;
    for (const Shard& shard : plan.ranks[rank].clean) clean_rows += shard.tokens;
    RC_ASSERT(clean_rows == plan.clean_rows_per_rank);
    RC_ASSERT(noisy_rows <= plan.noisy_rows_per_rank);
    if (plan.gathers_noisy) RC_ASSERT(noisy_rows == plan.noisy_rows_per_rank);
    if (brute) RC_ASSERT(brute_pairs(plan.ranks[rank], plan.block_tokens) == loads.ranks[rank].pairs);
  }
  RC_ASSERT(all_once(noisy));
  RC_ASSERT(all_once(clean));
  BdPairs total;
  for (const PlannedDocument& document : documents) total += block_diffusion_pairs(document.tokens, plan.block_tokens);
  RC_ASSERT(loads.pairs == total);
}

RC_GTEST_PROP(BdPlan, CsbpCoversTheMask, ()) {
  const Documents documents = some_documents(400);
  const auto ranks = *rc::gen::inRange<std::int64_t>(1, 17);
  check_plan(*plan_csbp(documents, ranks, *rc::gen::inRange<std::int64_t>(1, 40)), documents, true);
}

RC_GTEST_PROP(BdPlan, CsbpCoversLargeBatches, ()) {
  const Documents documents = some_documents(2048);
  const auto ranks = *rc::gen::inRange<std::int64_t>(2, 17);
  check_plan(*plan_csbp(documents, ranks, *rc::gen::element<std::int64_t>(8, 32, 256)), documents, false);
}

RC_GTEST_PROP(BdPlan, OffsetCoversTheMask, ()) {
  const Documents documents = some_documents(400);
  const auto ranks = *rc::gen::inRange<std::int64_t>(1, 17);
  const auto block = ranks * *rc::gen::inRange<std::int64_t>(1, 5);
  check_plan(*plan_bd_offset_cp(documents, ranks, block), documents, true);
}

// Every block on one rank; prefix costs of ranks differ by at most the longest pair, and not at all where 2P | N.
RC_GTEST_PROP(BdPlan, DualEndOwnsEachBlockOnce, ()) {
  const auto blocks = *rc::gen::inRange<std::int64_t>(0, 200);
  const auto ranks = *rc::gen::inRange<std::int64_t>(1, 17);
  std::vector<int> seen(static_cast<std::size_t>(blocks), 0);
  std::int64_t least = blocks * blocks, most = 0;
  for (const auto& owned : dual_end_blocks(blocks, ranks)) {
    std::int64_t cost = 0;
    for (const std::int64_t block : owned) {
      ++seen[static_cast<std::size_t>(block)];
      cost += block;
    }
    if (blocks >= ranks) RC_ASSERT(!owned.empty());
    least = std::min(least, cost);
    most = std::max(most, cost);
  }
  RC_ASSERT(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
  RC_ASSERT(most - least <= std::max<std::int64_t>(0, blocks - 1));
  if (blocks % (2 * ranks) == 0) RC_ASSERT(most == least);
}

}  // namespace
}  // namespace longhaul
