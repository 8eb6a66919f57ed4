#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/strategies/sequence_parallel/plan.h"
#include "sim/strategies/sequence_parallel/plan_json.h"

namespace longhaul {
namespace {

using Lengths = std::vector<std::int64_t>;

// 10 and 3 tokens on a group of 4: 3 rows and 1 row a rank.
TEST(SpPlan, UlyssesSlicesEverySequence) {
  const SpPlan plan = *plan_ulysses(Lengths{10, 3}, 4, 8, 4);
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.groups[0], (SpGroup{0, {0, 1}, 4}));
  EXPECT_EQ(plan.rows[0], (std::vector<SequenceRows>{{0, 0, 3, 0}, {1, 0, 1, 0}}));
  EXPECT_EQ(plan.rows[3], (std::vector<SequenceRows>{{0, 9, 1, 2}, {1, 3, 0, 1}}));
}

TEST(SpPlan, BaspGivesEachGroupItsSequence) {
  const SpPlan plan = *plan_basp(Lengths{10, 3}, 4, 8, 4);
  EXPECT_EQ(plan.group_size, 2);
  EXPECT_EQ(plan.groups, (std::vector<SpGroup>{{0, {0}, 5}, {2, {1}, 2}}));
  EXPECT_EQ(plan.rows[1], (std::vector<SequenceRows>{{0, 5, 5, 0}}));
  EXPECT_EQ(plan.rows[3], (std::vector<SequenceRows>{{1, 2, 1, 1}}));
  EXPECT_EQ(&plan.group_of(3), &plan.groups[1]);
  EXPECT_EQ(plan.local_rank(3), 1);
}

// gcd(8, 12) = 4 groups of 2 ranks with 3 sequences each; gcd(4, 8) = 4 groups of 1; gcd(4, 3) = 1 is Ulysses.
TEST(SpPlan, GcdPolicy) {
  const SpPlan plan = *plan_basp(Lengths(12, 6), 8, 8, 4, BaspBatchPolicy::kGcd);
  EXPECT_EQ(plan.group_size, 2);
  ASSERT_EQ(plan.groups.size(), 4u);
  EXPECT_EQ(plan.groups[1], (SpGroup{2, {3, 4, 5}, 9}));
  EXPECT_EQ(plan_basp(Lengths(8, 6), 4, 8, 4, BaspBatchPolicy::kGcd)->group_size, 1);
  EXPECT_EQ(*plan_basp(Lengths(3, 6), 4, 8, 4, BaspBatchPolicy::kGcd), *plan_ulysses(Lengths(3, 6), 4, 8, 4));
  EXPECT_EQ(*plan_basp(Lengths(2, 6), 4, 8, 4, BaspBatchPolicy::kGcd), *plan_basp(Lengths(2, 6), 4, 8, 4));
}

// 3 sequences on 8 ranks: 4 groups of 2, the last idle.
TEST(SpPlan, PadPolicy) {
  const SpPlan plan = *plan_basp(Lengths(3, 6), 8, 8, 4, BaspBatchPolicy::kPad);
  ASSERT_EQ(plan.groups.size(), 4u);
  EXPECT_EQ(plan.groups[2], (SpGroup{4, {2}, 3}));
  EXPECT_EQ(plan.groups[3], (SpGroup{6, {}, 0}));
  EXPECT_TRUE(plan.rows[7].empty());
}

// 16 query heads on 2 K/V heads over 8 ranks: K/V head j is held by ranks 4j .. 4j+3, which own its query heads.
TEST(SpPlan, HeadsWithReplication) {
  const HeadShare share = *head_share(16, 2, 8);
  EXPECT_EQ(share, (HeadShare{8, 2, 1, 4}));
  for (std::int64_t q_heads = 1; q_heads <= 32; ++q_heads) {
    for (std::int64_t kv_heads = 1; kv_heads <= q_heads; ++kv_heads) {
      if (q_heads % kv_heads != 0) continue;
      for (std::int64_t size = 1; size <= 33; ++size) {
        const auto heads = head_share(q_heads, kv_heads, size);
        const bool divides = kv_heads % size == 0 || size % kv_heads == 0;
        ASSERT_EQ(heads.has_value(), q_heads % size == 0 && divides);
        if (!heads) continue;
        const std::int64_t group = q_heads / kv_heads;
        for (std::int64_t local = 0; local < size; ++local) {
          // Query heads see exactly the K/V heads that the rank holds.
          const std::int64_t first = heads->first_q_head(local);
          EXPECT_EQ(first / group, heads->first_kv_head(local));
          EXPECT_EQ((first + heads->q_heads - 1) / group, heads->first_kv_head(local) + heads->kv_heads - 1);
        }
      }
    }
  }
}

TEST(SpPlan, ReasonsWhereItCannotBeApplied) {
  EXPECT_EQ(plan_ulysses(Lengths{8}, 0, 8, 8).error(), "the group needs at least 1 rank, not 0");
  EXPECT_EQ(plan_basp(Lengths{8}, 0, 8, 8).error(), "the group needs at least 1 rank, not 0");
  EXPECT_EQ(plan_ulysses({}, 2, 8, 8).error(), "the micro-batch has no sequences");
  EXPECT_EQ(plan_ulysses(Lengths{8}, 16, 8, 8).error(), "a group of 16 ranks does not divide the 8 query heads");
  EXPECT_EQ(plan_ulysses(Lengths{8}, 4, 12, 6).error(),
            "a group of 4 ranks neither divides the 6 K/V heads nor is a multiple of them");
  EXPECT_EQ(plan_basp(Lengths(3, 8), 8, 8, 8).error(), "the micro-batch of 3 sequences does not divide the 8 ranks");
  EXPECT_EQ(plan_basp(Lengths(9, 8), 8, 8, 8, BaspBatchPolicy::kPad).error(),
            "a micro-batch of 9 sequences is larger than the 8 ranks");
}

TEST(SpPlanJson, NamesGroupsAndBytes) {
  const SpPlan plan = *plan_basp(Lengths{8, 8}, 8, 8, 4);
  const std::vector<std::int64_t> pairs = {36, 20};
  const auto json = plan_json(plan, {pairs, 16, 2, 0, 2});
  EXPECT_EQ(json["group_size"], 4);
  EXPECT_EQ(json["groups"][1]["pair_heads_per_rank"], 40);
  EXPECT_EQ(json["groups"][1]["topology"], "whole-nodes");
  // n = 2, d e = 32: 2 * 32 * (2*8 + 2*4) = 1536; 3/4 leaves the GPU, 2/4 the node.
  EXPECT_EQ(json["groups"][0]["all_to_all_bytes_per_rank_layer"].dump(),
            R"({"buffer":1536,"leaves_gpu":1152,"leaves_node_max":768})");
  EXPECT_EQ(json["per_rank"][5]["rows"].dump(), R"([{"sequence":1,"first_token":2,"tokens":2,"padding":0}])");
}

}  // namespace
}  // namespace longhaul
