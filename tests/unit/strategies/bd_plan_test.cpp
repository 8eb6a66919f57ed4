#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/strategies/block_diffusion/plan.h"
#include "sim/strategies/block_diffusion/plan_json.h"

namespace longhaul {
namespace {

using Documents = std::vector<PlannedDocument>;

// Two documents of 2 and 1 blocks of 4 on 2 ranks (2P = 4 divides neither): blocks by pairs t (start + t): document 0
// block 1, 4 * 8 = 32; then block 0 of either, 16 each. Rank 0 takes 32, rank 1 both of 16.
TEST(BdPlan, CsbpAssignsSeveralDocumentsJointly) {
  const BdPlan plan = *plan_csbp(Documents{{0, 8}, {1, 4}}, 2, 4);
  EXPECT_EQ(plan.ranks[0].noisy, (std::vector<Shard>{{0, 4, 4, 8}}));
  EXPECT_EQ(plan.ranks[1].noisy, (std::vector<Shard>{{0, 0, 4, 8}, {1, 0, 4, 4}}));
  EXPECT_EQ(plan.noisy_rows_per_rank, 8);
  EXPECT_EQ(plan.clean_rows_per_rank, 6);
  EXPECT_FALSE(plan.gathers_noisy);
}

// Document 0 has 4 blocks = 2P and is paired, document 1 is not.
TEST(BdPlan, CsbpPairsDocumentsThatDivide) {
  const BdPlan plan = *plan_csbp(Documents{{0, 8}, {1, 1}}, 2, 2);
  EXPECT_EQ(plan.ranks[0].noisy, (std::vector<Shard>{{0, 0, 2, 8}, {0, 6, 2, 8}, {1, 0, 1, 1}}));
  EXPECT_EQ(plan.ranks[1].noisy, (std::vector<Shard>{{0, 2, 2, 8}, {0, 4, 2, 8}}));
}

// Fewer blocks than ranks: some ranks hold clean rows only.
TEST(BdPlan, CsbpWithFewerBlocksThanRanks) {
  const BdPlan plan = *plan_csbp(Documents{{0, 5}}, 4, 32);
  EXPECT_EQ(plan.ranks[0].noisy, (std::vector<Shard>{{0, 0, 5, 5}}));
  for (std::size_t rank = 1; rank < 4; ++rank) EXPECT_TRUE(plan.ranks[rank].noisy.empty());
  EXPECT_EQ(plan.clean_rows_per_rank, 2);
}

// A last block of 5 tokens, P = 2, b = 8: padded to 8, width 2: rank 0 offsets 0-1 and 6-7 (padding), rank 1 2-3 and
// 4-5 (one of them padding).
TEST(BdPlan, OffsetPadsAShortBlock) {
  const BdPlan plan = *plan_bd_offset_cp(Documents{{0, 5}}, 2, 8);
  EXPECT_EQ(plan.noisy_rows_per_rank, 4);
  EXPECT_EQ(plan.ranks[0].noisy, (std::vector<Shard>{{0, 0, 2, 5}, padding_shard(2)}));
  EXPECT_EQ(plan.ranks[1].noisy, (std::vector<Shard>{{0, 2, 2, 5}, {0, 4, 1, 5}, padding_shard(1)}));
  EXPECT_TRUE(plan.gathers_noisy);
}

TEST(BdPlan, ReasonsWhereItCannotBeApplied) {
  const Documents documents = {{0, 8}};
  EXPECT_EQ(plan_csbp({}, 2, 4).error(), "the sequence has no documents");
  EXPECT_EQ(plan_csbp(documents, 0, 4).error(), "the group needs at least 1 rank, not 0");
  EXPECT_EQ(plan_csbp(documents, 2, 0).error(), "blocks need at least 1 token, not 0");
  EXPECT_EQ(plan_bd_offset_cp({}, 2, 4).error(), "the sequence has no documents");
  EXPECT_EQ(plan_bd_offset_cp(documents, 2, 0).error(), "blocks need at least 1 token, not 0");
  EXPECT_EQ(plan_bd_offset_cp(documents, 3, 8).error(), "the 3 ranks do not divide the block of 8 tokens");
}

TEST(BdPlanJson, NamesViewsAndBytes) {
  const auto json = plan_json(*plan_csbp(Documents{{0, 8}}, 2, 2), 16, 2);
  EXPECT_EQ(json["pairs"]["total"], 80);
  EXPECT_EQ(json["imbalance"], 1.0);
  EXPECT_EQ(json["gather_bytes_per_rank_layer"], 1 * 2 * 4 * 16 * 2);
  EXPECT_EQ(json["per_rank"][1]["pairs"], 40);
  EXPECT_EQ(json["per_rank"][0]["noisy"].dump(),
            R"([{"document":0,"first_token":0,"tokens":2},{"document":0,"first_token":6,"tokens":2}])");
  EXPECT_EQ(json["per_rank"][1]["clean"].dump(), R"([{"document":0,"first_token":2,"tokens":4}])");
}

}  // namespace
}  // namespace longhaul
