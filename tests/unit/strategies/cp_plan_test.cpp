#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/strategies/context_parallel/flashcp.h"
#include "sim/strategies/context_parallel/plan_json.h"

namespace longhaul {
namespace {

using Documents = std::vector<PlannedDocument>;

// WLB-LLM's remainder rule on 4 chunks. Document 0 (5 tokens): 1 each, the extra one to chunk 0; cursor 1. Document 1
// (3 tokens): chunks 1, 2, 3. All chunks sum to 2.
TEST(CpPlan, PerDocRemainderCarriesTheCursor) {
  const CpPlan plan = *plan_per_doc_cp(Documents{{0, 5}, {1, 3}}, 2);
  EXPECT_EQ(plan.padded_tokens_per_rank, 4);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{0, 0, 2, 5}, {0, 4, 1, 5}, {1, 2, 1, 3}}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{0, 2, 1, 5}, {1, 0, 1, 3}, {0, 3, 1, 5}, {1, 1, 1, 3}}));
}

TEST(CpPlan, PerDocPadsTheEndOfTheSequence) {
  const CpPlan plan = *plan_per_doc_cp(Documents{{0, 1}}, 2);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{0, 0, 1, 1}, padding_shard(1)}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{padding_shard(2)}));
}

// 10 tokens on 4 chunks of 3 rows: rank 0 holds rows 0-2 and 9-11 (two of them padding), rank 1 rows 3-8.
TEST(CpPlan, AllGatherCutsThePackedSequence) {
  const CpPlan plan = *plan_allgather_cp(Documents{{7, 4}, {3, 6}}, 2);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{7, 0, 3, 4}, {3, 5, 1, 6}, padding_shard(2)}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{7, 3, 1, 4}, {3, 0, 5, 6}}));
}

// 5 tokens in 4 chunks of 2: chunk 2 is half padding, chunk 3 all; 1 token in 4 chunks of 1.
TEST(CpPlan, ZigzagPadsEveryDocument) {
  const CpPlan plan = *plan_zigzag_cp(Documents{{0, 5}, {1, 1}}, 2);
  EXPECT_EQ(plan.padded_tokens_per_rank, 6);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{0, 0, 2, 5}, padding_shard(2), {1, 0, 1, 1}, padding_shard(1)}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{0, 2, 3, 5}, padding_shard(3)}));
}

TEST(CpPlan, ContiguousShards) {
  const CpPlan plan = *plan_contiguous_cp(Documents{{0, 3}, {1, 4}}, 2);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{0, 0, 3, 3}, {1, 0, 1, 4}}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{1, 1, 3, 4}, padding_shard(1)}));
}

TEST(CpPlan, LoadCountsNonlastAndNeed) {
  // Document 0 of 10: owns [2, 4) and [6, 8): sees [0, 8), needs 4. Document 1: its last 3 of 5 tokens, needs 2.
  const std::vector<Shard> shards = {{0, 2, 2, 10}, {0, 6, 2, 10}, {1, 2, 3, 5}, padding_shard(2)};
  const CpRankLoad load = cp_rank_load(shards);
  EXPECT_EQ(load, (CpRankLoad{7, 2, 3, shard_pairs(2, 2) + shard_pairs(6, 2) + shard_pairs(2, 3), 4, 6}));
  EXPECT_EQ(sendable_shards(shards), (std::vector<Shard>{{0, 2, 2, 10}, {0, 6, 2, 10}}));
}

TEST(CpPlan, ConcatenateJoinsSequences) {
  const std::vector<CpPlan> plans = {*plan_contiguous_cp(Documents{{0, 4}}, 2),
                                     *plan_contiguous_cp(Documents{{1, 3}}, 2)};
  const CpPlan both = concatenate(plans);
  EXPECT_EQ(both.padded_tokens_per_rank, 4);
  EXPECT_EQ(both.ranks[1], (std::vector<Shard>{{0, 2, 2, 4}, {1, 2, 1, 3}, padding_shard(1)}));
}

TEST(CpPlan, ReasonsWhereItCannotBeApplied) {
  const Documents one = {{0, 4}};
  EXPECT_EQ(plan_allgather_cp(one, 0).error(), "the group needs at least 1 rank, not 0");
  EXPECT_EQ(plan_zigzag_cp(one, 0).error(), "the group needs at least 1 rank, not 0");
  EXPECT_EQ(plan_per_doc_cp(one, -1).error(), "the group needs at least 1 rank, not -1");
  EXPECT_EQ(plan_contiguous_cp({}, 2).error(), "the sequence has no documents");
  EXPECT_EQ(plan_flashcp({}, 2).error(), "the sequence has no documents");
  EXPECT_EQ(plan_flashcp_with({}, 2, 0).error(), "the sequence has no documents");
  EXPECT_EQ(flashcp_candidates({}, 2).error(), "the sequence has no documents");
  EXPECT_EQ(plan_flashcp_scored({}, 2, {}, [](const CpPlan&) { return 0.0; }).error(), "the sequence has no documents");
}

// One token on four ranks: every plan has max/mean 4, so no limit can hold; the least Per-Doc set is taken.
TEST(FlashCp, OneTokenOnFourRanks) {
  const CpPlan plan = *plan_flashcp(Documents{{0, 1}}, 4);
  EXPECT_EQ(plan.padded_tokens_per_rank, 1);
  EXPECT_TRUE(plan.per_doc_documents.empty());
  const CpLoads loads = cp_loads(plan);
  EXPECT_EQ(loads.padding, 3);
  EXPECT_EQ(loads.imbalance, 4);
}

// Lengths 6 and 2 on two ranks of 4. LPT puts each on its own rank; two tokens must move; the average is 12 pairs.
//   head of 0: rank 0 keeps W(2, 4) = 18 (overload 6), rank 1 gets 3 + 3; sends 2 tokens
//   tail of 0: rank 0 keeps w(4) = 10, rank 1 gets 3 + W(4, 2) = 14 (overload 2); sends 4 tokens
// cost = lambda overload / 12 + max sent / 4 + 0.05 sum sent / 4: 1.025 against 1.217 with lambda 1, 5.5 against 2.7
// with lambda 10.
TEST(FlashCp, EqualiseTakesTheCheaperEnd) {
  const Documents documents = {{0, 6}, {1, 2}};
  const CpPlan head = *plan_flashcp_with(documents, 2, 0);
  EXPECT_EQ(head.ranks[0], (std::vector<Shard>{{0, 2, 4, 6}}));
  EXPECT_EQ(head.ranks[1], (std::vector<Shard>{{0, 0, 2, 6}, {1, 0, 2, 2}}));
  FlashCpOptions options;
  options.overload_weight = 10;
  const CpPlan tail = *plan_flashcp_with(documents, 2, 0, options);
  EXPECT_EQ(tail.ranks[0], (std::vector<Shard>{{0, 0, 4, 6}}));
  EXPECT_EQ(tail.ranks[1], (std::vector<Shard>{{0, 4, 2, 6}, {1, 0, 2, 2}}));
}

// From the plan of `head` above, 18 pairs against 6: A = [2, 6) of document 0, B = document 1, K = 6, wanted 6, so
// x = (6 - sqrt(12)) / 2 = 1.27, one token: 13 against 11. The next exchange (K = 4) would move 3, more than the
// difference of 2, and is refused.
TEST(FlashCp, SwapExchangesTailForHead) {
  FlashCpOptions options;
  options.cut_rule = FlashCutRule::kEqualiseSwap;
  const CpPlan plan = *plan_flashcp_with(Documents{{0, 6}, {1, 2}}, 2, 0, options);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{0, 2, 3, 6}, {1, 0, 1, 2}}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{0, 0, 2, 6}, {0, 5, 1, 6}, {1, 1, 1, 2}}));
}

TEST(FlashCp, ScorerChoosesAmongCandidates) {
  const Documents documents = {{0, 900}, {1, 300}, {2, 200}, {3, 100}, {4, 60}, {5, 40}};
  const auto candidates = *flashcp_candidates(documents, 4);
  // Algorithm 1's pick, then 0, 1, 2, 3, 4 and all 6 Per-Doc documents without repeats.
  EXPECT_EQ(candidates.front(), *plan_flashcp(documents, 4));
  EXPECT_EQ(candidates.size(), 6u);
  const auto most = [](const CpPlan& plan) { return -static_cast<double>(plan.per_doc_documents.size()); };
  EXPECT_EQ(*plan_flashcp_scored(documents, 4, {}, most), *plan_flashcp_with(documents, 4, 6));
  EXPECT_EQ(*plan_flashcp_scored(documents, 4, {}, [](const CpPlan&) { return 1.0; }), candidates.front());
}

// 8,192 equal documents on 32 ranks balance whole. A document of 32 ranks is 64 shards, so 128 of them make as many as
// there are documents: 0, 1, 8 and 64 are tried, neither 512 nor all.
TEST(FlashCp, LargeProblemsTryNoMorePerDocShardsThanDocuments) {
  Documents documents;
  for (DocumentId id = 0; id < 8'192; ++id) documents.push_back({id, 64});
  std::vector<std::size_t> counts;
  const auto candidates = *flashcp_candidates(documents, 32);
  for (const CpPlan& plan : candidates) counts.push_back(plan.per_doc_documents.size());
  EXPECT_EQ(counts, (std::vector<std::size_t>{0, 1, 8, 64}));
}

TEST(FlashCp, NaiveMovesTheTailOfTheLongest) {
  FlashCpOptions options;
  options.cut_rule = FlashCutRule::kNaive;
  const CpPlan plan = *plan_flashcp_with(Documents{{0, 10}, {1, 2}}, 2, 0, options);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{0, 0, 6, 10}}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{0, 6, 4, 10}, {1, 0, 2, 2}}));
}

TEST(CpPlanJson, NamesShardsAndBytes) {
  const CpPlan plan = *plan_contiguous_cp(Documents{{0, 3}, {1, 4}}, 2);
  const auto json = plan_json(plan, plan.padded_tokens_per_rank, 16, 2);
  EXPECT_EQ(json["tokens"], 7);
  EXPECT_EQ(json["padding"], 1);
  EXPECT_EQ(json["pairs"], 16);
  EXPECT_EQ(json["gather_bytes_per_rank_layer"], 2 * 1 * 4 * 16 * 2);
  EXPECT_EQ(json["per_rank"][1]["shards"].dump(), R"([{"document":1,"first_token":1,"tokens":3},{"padding":1}])");
  EXPECT_EQ(json["per_rank"][1]["needed_tokens"], 1);
}

}  // namespace
}  // namespace longhaul
