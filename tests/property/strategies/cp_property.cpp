#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/strategies/context_parallel/flashcp.h"
#include "tests/property/strategies/cp_documents.h"

namespace longhaul {
namespace {

using Documents = std::vector<PlannedDocument>;

// Each token once, equal rows on every rank, pairs of the whole batch, B_max within the rows of a rank.
void check_plan(const CpPlan& plan, const Documents& documents, std::int64_t ranks) {
  RC_ASSERT(plan.rank_count() == ranks);
  auto seen = no_tokens(documents);
  for (const auto& shards : plan.ranks) {
    count_tokens(seen, shards);
    const CpRankLoad load = cp_rank_load(shards);
    RC_ASSERT(load.tokens + load.padding == plan.padded_tokens_per_rank);
  }
  RC_ASSERT(all_once(seen));
  const CpLoads loads = cp_loads(plan);
  std::int64_t tokens = 0, pairs = 0;
  for (const PlannedDocument& document : documents) {
    tokens += document.tokens;
    pairs += causal_pairs(document.tokens);
  }
  RC_ASSERT(loads.tokens == tokens);
  RC_ASSERT(loads.pairs == pairs);
  RC_ASSERT(loads.nonlast_max <= plan.padded_tokens_per_rank);
}

FlashCpOptions some_options() {
  FlashCpOptions options;
  options.cut_rule = *rc::gen::element(FlashCutRule::kEqualise, FlashCutRule::kEqualiseSwap, FlashCutRule::kNaive);
  options.count_per_doc_pairs = *rc::gen::arbitrary<bool>();
  return options;
}

RC_GTEST_PROP(CpPlan, StaticSchemesHoldEachTokenOnce, ()) {
  const Documents documents = some_documents(2048);
  const auto ranks = *rc::gen::inRange<std::int64_t>(1, 17);
  std::int64_t tokens = 0;
  for (const PlannedDocument& document : documents) tokens += document.tokens;
  const CpPlan contiguous = *plan_contiguous_cp(documents, ranks);
  check_plan(contiguous, documents, ranks);
  RC_ASSERT(contiguous.padded_tokens_per_rank * ranks - tokens < ranks);
  const CpPlan gathered = *plan_allgather_cp(documents, ranks);
  check_plan(gathered, documents, ranks);
  RC_ASSERT(gathered.padded_tokens_per_rank * ranks - tokens < 2 * ranks);
  const CpPlan per_doc = *plan_per_doc_cp(documents, ranks);
  check_plan(per_doc, documents, ranks);
  RC_ASSERT(per_doc.padded_tokens_per_rank == gathered.padded_tokens_per_rank);
  const CpPlan zigzag = *plan_zigzag_cp(documents, ranks);
  check_plan(zigzag, documents, ranks);
}

// Every document a multiple of 2N: Per-Doc and zigzag own the same tokens, and pairs are equal on all ranks.
RC_GTEST_PROP(CpPlan, PerDocAndZigzagAgreeWithoutRemainder, ()) {
  const auto ranks = *rc::gen::inRange<std::int64_t>(1, 9);
  Documents documents = some_documents(128);
  for (PlannedDocument& document : documents) document.tokens *= 2 * ranks;
  const CpLoads per_doc = cp_loads(*plan_per_doc_cp(documents, ranks));
  const CpLoads zigzag = cp_loads(*plan_zigzag_cp(documents, ranks));
  RC_ASSERT(per_doc.pairs_max * ranks == per_doc.pairs);
  RC_ASSERT(zigzag.pairs_max * ranks == zigzag.pairs);
  RC_ASSERT(per_doc.padding + zigzag.padding == 0);
}

// The tokens that a rank's queries see, token by token, less its own.
RC_GTEST_PROP(CpPlan, NeedIsWhatQueriesSee, ()) {
  const Documents documents = some_documents(300);
  const auto ranks = *rc::gen::inRange<std::int64_t>(2, 9);
  const CpPlan plan = *plan_flashcp(documents, ranks, some_options());
  for (const auto& shards : plan.ranks) {
    auto owned = no_tokens(documents);
    count_tokens(owned, shards);
    std::int64_t need = 0;
    for (const auto& document : owned) {
      bool query_after = false;
      for (std::size_t key = document.size(); key-- > 0;) {
        query_after = query_after || document[key] == 1;
        if (query_after && document[key] == 0) ++need;
      }
    }
    RC_ASSERT(cp_rank_load(shards).need == need);
  }
}

RC_GTEST_PROP(FlashCp, EveryPerDocSetGivesAValidPlan, ()) {
  const Documents documents = some_documents(2048);
  const auto ranks = *rc::gen::inRange<std::int64_t>(2, 17);
  const FlashCpOptions options = some_options();
  const auto count = *rc::gen::inRange<std::int64_t>(0, static_cast<std::int64_t>(documents.size()) + 1);
  const CpPlan plan = *plan_flashcp_with(documents, ranks, count, options);
  check_plan(plan, documents, ranks);
  RC_ASSERT(cp_loads(plan).padding < ranks);
  RC_ASSERT(static_cast<std::int64_t>(plan.per_doc_documents.size()) == count);
}

// Algorithm 1 from its definition: the first Per-Doc count within the limit; the least imbalance where none is.
RC_GTEST_PROP(FlashCp, SearchTakesTheFirstWithinTheLimit, ()) {
  const Documents documents = some_documents(1024);
  const auto ranks = *rc::gen::inRange<std::int64_t>(2, 17);
  FlashCpOptions options = some_options();
  options.count_per_doc_pairs = true;
  const CpPlan plan = *plan_flashcp(documents, ranks, options);
  CpPlan expected;
  double least = -1;
  for (std::int64_t count = 0; count <= static_cast<std::int64_t>(documents.size()); ++count) {
    const CpPlan candidate = *plan_flashcp_with(documents, ranks, count, options);
    const double imbalance = cp_loads(candidate).imbalance;
    if (least < 0 || imbalance < least) {
      least = imbalance;
      expected = candidate;
    }
    if (imbalance <= options.imbalance_limit) break;
  }
  RC_ASSERT(plan == expected);
}

// With every document in the Per-Doc set the plan owns what WLB-LLM's rule gives to the same order of documents.
RC_GTEST_PROP(FlashCp, AllPerDocIsPerDoc, ()) {
  Documents documents = some_documents(1024);
  std::stable_sort(documents.begin(), documents.end(),
                   [](const PlannedDocument& a, const PlannedDocument& b) { return a.tokens > b.tokens; });
  const auto ranks = *rc::gen::inRange<std::int64_t>(2, 17);
  const CpLoads flash = cp_loads(*plan_flashcp_with(documents, ranks, static_cast<std::int64_t>(documents.size())));
  const CpLoads per_doc = cp_loads(*plan_per_doc_cp(documents, ranks));
  for (std::size_t rank = 0; rank < flash.ranks.size(); ++rank) {
    RC_ASSERT(flash.ranks[rank].tokens == per_doc.ranks[rank].tokens);
    RC_ASSERT(flash.ranks[rank].pairs == per_doc.ranks[rank].pairs);
  }
}

RC_GTEST_PROP(FlashCp, SwapsNeverRaiseTheMost, ()) {
  const Documents documents = some_documents(2048);
  const auto ranks = *rc::gen::inRange<std::int64_t>(2, 17);
  FlashCpOptions swap;
  swap.cut_rule = FlashCutRule::kEqualiseSwap;
  RC_ASSERT(cp_loads(*plan_flashcp_with(documents, ranks, 0, swap)).pairs_max <=
            cp_loads(*plan_flashcp_with(documents, ranks, 0)).pairs_max);
}

}  // namespace
}  // namespace longhaul
