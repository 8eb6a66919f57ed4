// Plans that deal chunks or documents: MagiAttention, Skrull, hybrid CP, WLB-LLM's packing and choice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "sim/strategies/context_parallel/dispatch.h"
#include "sim/strategies/context_parallel/shapes.h"
#include "sim/strategies/context_parallel/shuffle.h"
#include "sim/strategies/context_parallel/wlb.h"

namespace longhaul {
namespace {

using Documents = std::vector<PlannedDocument>;
using testing::ElementsAre;

// One document of 8 tokens, chunks of 2, two a rank. Areas 3, 7, 11, 15: 15 to rank 0, 11 to rank 1, 7 to rank 1 (11 <
// 15), which is full then; 3 to rank 0. Both hold 18 pairs.
TEST(Magi, LargestAreaToTheRankWithLeast) {
  const CpPlan plan = *plan_magi(Documents{{0, 8}}, 2, 2);
  EXPECT_EQ(plan.padded_tokens_per_rank, 4);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{0, 0, 2, 8}, {0, 6, 2, 8}}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{0, 2, 4, 8}}));
  EXPECT_EQ(cp_loads(plan).imbalance, 1);
}

// 11 tokens in chunks of 2: 6 chunks, 3 a rank. Areas of (7, 4): 3, 7, 11, 7 (one row of document 0, prefix 6) + 1, 5,
// 4: chunk 3 holds token 6 of document 0 and token 0 of document 1, 7 + 1 = 8; chunk 4 tokens 1, 2: 2 + 3; chunk 5
// token 3 and padding: 4.
TEST(Magi, ChunksCrossDocumentsAndPadAtTheEnd) {
  const CpPlan plan = *plan_magi(Documents{{5, 7}, {2, 4}}, 2, 2);
  EXPECT_EQ(plan.padded_tokens_per_rank, 6);
  // 11 -> rank 0; 8 -> 1; 7 -> 1 (8 < 11); 5 -> 0 (11 < 15); 4 -> 1 (15 < 16), full; 3 -> 0.
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{5, 0, 2, 7}, {5, 4, 2, 7}, {2, 1, 2, 4}}));
  EXPECT_EQ(plan.ranks[1],
            (std::vector<Shard>{{5, 2, 2, 7}, {5, 6, 1, 7}, {2, 0, 1, 4}, {2, 3, 1, 4}, padding_shard(1)}));
}

TEST(Magi, ChunksShrinkUntilEveryRankHasOne) {
  const CpPlan plan = *plan_magi(Documents{{0, 6}}, 4, 2048);
  EXPECT_EQ(plan.padded_tokens_per_rank, 2);
  EXPECT_EQ(cp_loads(plan).tokens, 6);
  EXPECT_EQ(cp_loads(plan).padding, 2);
}

// Four documents of 2 tokens are equal areas: the last goes first.
TEST(Magi, EqualAreasGoLastOneFirst) {
  const CpPlan plan = *plan_magi(Documents{{0, 2}, {1, 2}, {2, 2}, {3, 2}}, 2, 2);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{1, 0, 2, 2}, {3, 0, 2, 2}}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{0, 0, 2, 2}, {2, 0, 2, 2}}));
}

// Python 3.11: random.seed(42); random.shuffle(a) of a = list(range(n)).
TEST(Shuffle, IsPythons) {
  EXPECT_THAT(python_shuffle(10, 42), ElementsAre(7, 3, 2, 8, 5, 6, 9, 4, 0, 1));
  const std::vector<std::int64_t> long_one = python_shuffle(1000, 42);
  EXPECT_THAT(std::vector(long_one.begin(), long_one.begin() + 5), ElementsAre(776, 507, 895, 922, 33));
  EXPECT_THAT(std::vector(long_one.end() - 3, long_one.end()), ElementsAre(25, 114, 654));
  EXPECT_TRUE(python_shuffle(0, 42).empty());
}

// Tokens of the one document that each stage of a rank receives, by first token.
std::vector<std::map<std::int64_t, std::int64_t>> cast_tokens(const CpRankShape& shape) {
  std::vector<std::map<std::int64_t, std::int64_t>> stages;
  for (const GatherShape& gather : shape.gathers) {
    auto& tokens = stages.emplace_back();
    for (const RowRun& run : gather.gathered_rows->runs) tokens[run.first] = run.count;
  }
  return stages;
}

// One document of 8,192 tokens, chunks of 2,048: rank 0 has the first and the last, rank 1 those between. Rank 0 lacks
// 8 runs of 512, which Python shuffles to 3 4 6 7 2 5 0 1; with its own part there are 9, 5 for the first stage: 3, 4,
// 6 and 7. Rank 1 lacks 4, shuffled to 2 1 3 0: 2 and 1 for the first stage.
TEST(Magi, RunsAreDealtAsTheBenchmarkShufflesThem) {
  using Stages = std::vector<std::map<std::int64_t, std::int64_t>>;
  const CpPlan plan = *plan_magi(Documents{{0, 8192}}, 2, 2048);
  const std::vector<CpRankShape> shapes = cast_shapes(plan, 2, CastDeal::kShuffled);
  EXPECT_EQ(cast_tokens(shapes[0]), (Stages{{{3584, 1024}, {5120, 1024}}, {{2048, 1536}, {4608, 512}}}));
  EXPECT_EQ(cast_tokens(shapes[1]), (Stages{{{512, 1024}}, {{0, 512}, {1536, 512}}}));
  const std::vector<CpRankShape> in_order = cast_shapes(plan, 2, CastDeal::kInOrder);
  EXPECT_EQ(cast_tokens(in_order[0]), (Stages{{{2048, 2048}}, {{4096, 2048}}}));
  EXPECT_EQ(cast_tokens(in_order[1]), (Stages{{{0, 1024}}, {{1024, 1024}}}));
}

// 100 tokens are one run, so all are cast in the first of three stages; the rank with the first chunk lacks nothing.
TEST(Magi, StagesWithoutRunsAreEmpty) {
  const CpPlan plan = *plan_magi(Documents{{0, 200}}, 2, 100);
  const std::vector<CpRankShape> shapes = cast_shapes(plan, 3, CastDeal::kShuffled);
  using Stages = std::vector<std::map<std::int64_t, std::int64_t>>;
  EXPECT_EQ(cast_tokens(shapes[0]), (Stages{{{0, 100}}, {}, {}}));
  EXPECT_EQ(cast_tokens(shapes[1]), (Stages{{}, {}, {}}));
}

// Buckets of 6: 2 to rank 0 (fewest pairs), 3 to rank 1, 4 to rank 0 (3 < 6 pairs, and room for 4).
TEST(Skrull, ShortDocumentsStayWhole) {
  const CpPlan plan = *plan_skrull(Documents{{0, 2}, {1, 3}, {2, 4}}, 2, 6);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{0, 0, 2, 2}, {2, 0, 4, 4}}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{1, 0, 3, 3}}));
  EXPECT_TRUE(plan.per_doc_documents.empty());
  EXPECT_EQ(plan.padded_tokens_per_rank, 6);
}

// 8 tokens fit no bucket of 6: two chunks of 2 on each rank, 4 rows, beside which rank 0 keeps its 2.
TEST(Skrull, WhatFitsNowhereIsDistributed) {
  const CpPlan plan = *plan_skrull(Documents{{0, 8}, {1, 2}}, 2, 6);
  EXPECT_EQ(plan.ranks[0], (std::vector<Shard>{{0, 0, 2, 8}, {0, 6, 2, 8}, {1, 0, 2, 2}}));
  EXPECT_EQ(plan.ranks[1], (std::vector<Shard>{{0, 2, 4, 8}}));
  EXPECT_THAT(plan.per_doc_documents, ElementsAre(0));
}

// Buckets of 5: 4 stays whole on rank 0, 8 is distributed: 4 rows each, 8 rows on rank 0. The 4 is rolled back and cut:
// 2 rows each, 6 rows > 5 on both, and nothing is left to roll back.
TEST(Skrull, RollsBackAndRefuses) {
  const CpPlan rolled = *plan_skrull(Documents{{0, 4}, {1, 8}}, 2, 6);
  EXPECT_THAT(rolled.per_doc_documents, ElementsAre(0, 1));
  EXPECT_EQ(rolled.padded_tokens_per_rank, 6);
  const auto refused = plan_skrull(Documents{{0, 4}, {1, 8}}, 2, 5);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error(), "12 tokens do not fit 2 buckets of 5");
}

// 4 tokens a rank: 13 tokens want 4 ranks, 7 want 2, 4 and 3 want 1. Work a rank: 42.25 everywhere, then 24.5 on 0-1,
// 16 on rank 2 (the first of the least), 9 on rank 3.
TEST(HybridCp, GroupsArePowersOfTwo) {
  const CpPlan plan = *plan_hybrid_cp(Documents{{0, 3}, {1, 13}, {2, 4}, {3, 7}}, 4, 4);
  EXPECT_EQ(plan.ranks[3].front(), (Shard{0, 0, 3, 3}));
  EXPECT_EQ(plan.ranks[2].back(), (Shard{2, 0, 4, 4}));
  // 7 tokens in 4 chunks: 2, 2, 2, 1.
  EXPECT_EQ(plan.ranks[0].back(), (Shard{3, 6, 1, 7}));
  EXPECT_EQ(plan.ranks[1].back(), (Shard{3, 2, 4, 7}));
  EXPECT_THAT(plan.per_doc_documents, ElementsAre(1));
  EXPECT_EQ(cp_loads(plan).tokens, 27);
}

TEST(HybridCp, NoGroupIsLargerThanAllRanks) {
  const CpPlan plan = *plan_hybrid_cp(Documents{{0, 30}}, 3, 4);
  for (const CpRankLoad& load : cp_loads(plan).ranks) EXPECT_EQ(load.tokens, 10);
}

TEST(DispatchPlans, RefuseWhatTheyCannotCut) {
  EXPECT_EQ(plan_magi(Documents{}, 2, 4).error(), "the sequence has no documents");
  EXPECT_EQ(plan_skrull(Documents{{0, 1}}, 0, 4).error(), "the group needs at least 1 rank, not 0");
  EXPECT_EQ(plan_hybrid_cp(Documents{}, 2, 4).error(), "the sequence has no documents");
}

std::vector<std::vector<std::int64_t>> lengths(const WlbBins& packed) {
  std::vector<std::vector<std::int64_t>> bins;
  for (const auto& bin : packed.bins) {
    bins.emplace_back();
    for (const PlannedDocument& document : bin) bins.back().push_back(document.tokens);
  }
  return bins;
}

// Work = pairs. 8 (36) to bin 0, 5 (15) to bin 1, 4 (10) to bin 1 (15 < 36), 3 (6) to bin 1 (25), 2 (3) to bin 1 (31):
// 14 tokens where an equal number would be 11.
TEST(WlbPacking, BalancesWorkUnderALimitOfTokens) {
  const Documents documents = {{0, 2}, {1, 8}, {2, 5}, {3, 3}, {4, 4}};
  EXPECT_THAT(lengths(wlb_pack_all(documents, 2, 14, {})), ElementsAre(ElementsAre(8), ElementsAre(5, 4, 3, 2)));
  // At most 12: the 2 goes to the shortest bin, which has 8.
  EXPECT_THAT(lengths(wlb_pack_all(documents, 2, 12, {})), ElementsAre(ElementsAre(8, 2), ElementsAre(5, 4, 3)));
  // At most 9: the 3 and the 2 fit neither bin (8 and 9) and go to the bin of least work (25), then the lesser again
  // (31 < 36).
  EXPECT_THAT(lengths(wlb_pack_all(documents, 2, 9, {})), ElementsAre(ElementsAre(8), ElementsAre(5, 4, 3, 2)));
}

TEST(WlbPacking, LinearWorkCounts) {
  const WlbWork work{1, 2};
  EXPECT_EQ(work.of(3), 6 + 6);
}

// Documents of 6 and more wait for a second one; both are given then, one to each bin.
TEST(WlbPacking, LongDocumentsWaitForOneEachBin) {
  WlbPacker packer(2, 10, {6}, {});
  EXPECT_THAT(lengths(packer.pack(Documents{{0, 7}, {1, 3}, {2, 3}})), ElementsAre(ElementsAre(3), ElementsAre(3)));
  EXPECT_EQ(packer.waiting(), 1);
  EXPECT_THAT(lengths(packer.pack(Documents{{3, 8}, {4, 2}})), ElementsAre(ElementsAre(8), ElementsAre(7, 2)));
  EXPECT_EQ(packer.waiting(), 0);
}

// 5 + 5 fill both bins of 7; the third 5 waits and comes before the longer 6 of the next step.
TEST(WlbPacking, WhatFitsNowhereIsTakenFirstNextTime) {
  WlbPacker packer(2, 7, {}, {});
  EXPECT_THAT(lengths(packer.pack(Documents{{0, 5}, {1, 5}, {2, 5}})), ElementsAre(ElementsAre(5), ElementsAre(5)));
  EXPECT_EQ(packer.waiting(), 1);
  EXPECT_THAT(lengths(packer.pack(Documents{{3, 6}})), ElementsAre(ElementsAre(5), ElementsAre(6)));
}

// One document: per-sequence and per-document sharding are one plan, and per-sequence is taken. A long one beside many
// short ones: the chunks of the packed sequence are uneven, those of each document are not.
TEST(WlbChoice, TakesTheFasterSharding) {
  const StrategyRequest request;  // no device: padded pairs
  const CpClock clock(request);
  EXPECT_EQ(*plan_wlb_sequence(Documents{{0, 4096}}, 2, clock), *plan_allgather_cp(Documents{{0, 4096}}, 2));
  const Documents mixed = {{0, 6144}, {1, 512}, {2, 512}, {3, 512}, {4, 512}};
  EXPECT_EQ(*plan_wlb_sequence(mixed, 2, clock), *plan_per_doc_cp(mixed, 2));
  // 128 documents of 64: per document each shard of 16 is padded to 128 queries, per sequence four documents are not.
  Documents tiny;
  for (DocumentId i = 0; i < 128; ++i) tiny.push_back({i, 64});
  EXPECT_EQ(*plan_wlb_sequence(tiny, 2, clock), *plan_allgather_cp(tiny, 2));
}

// Shards of 3 (prefix 2): 128 queries against a prefix of 2, 128 (2 x 2 + 129) / 2.
TEST(WlbChoice, PairsArePaddedToTiles) {
  CpPlan plan;
  plan.ranks = {{{0, 2, 3, 5}}, {{0, 0, 2, 5}}};
  EXPECT_EQ(wlb_padded_pairs(plan), 128 * 133 / 2);
}

}  // namespace
}  // namespace longhaul
