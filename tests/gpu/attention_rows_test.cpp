// Rows of attention-bench: their pieces, pairs in closed form, and what is wrong with faulty ones.

#include "validate/gpu/attention_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace longhaul {
namespace {

using testing::HasSubstr;

AttentionRow row_of(const std::string& mask, const std::string& pieces) { return {"r", 4, 2, 128, mask, pieces}; }

// Causal 5x5: 15 pairs; 2x7 bottom-right: 6 + 7; full 3x4: 12.
TEST(AttentionRows, CountsPairs) {
  const auto causal = attention_call(row_of("causal", "5x5;2x7"));
  ASSERT_TRUE(causal);
  EXPECT_EQ(causal->pairs, 15 + 13);
  EXPECT_EQ(causal->q_rows, 7);
  EXPECT_EQ(causal->k_rows, 12);
  EXPECT_EQ(causal->pieces[1].q_row, 5);
  EXPECT_EQ(causal->pieces[1].k_row, 5);
  const auto full = attention_call(row_of("full", "3x4"));
  ASSERT_TRUE(full);
  EXPECT_EQ(full->pairs, 12);
  // 4 x 12 pairs x 128 x 4 heads; 2.5 times that backward.
  EXPECT_EQ(attention_flops(row_of("full", "3x4"), *full, false), 4.0 * 12 * 128 * 4);
  EXPECT_EQ(attention_flops(row_of("full", "3x4"), *full, true), 10.0 * 12 * 128 * 4);
}

// L = 4, b = 2 (csbp.md 2.2): own blocks 2 x 4, clean blocks before 4, clean to clean 4 + 8 by blocks or 10 by tokens.
TEST(AttentionRows, CountsPairsOfBlockDiffusion) {
  const auto blocks = attention_call(row_of("block-diffusion:2", "4x4"));
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->pairs, 8 + 4 + 12);
  EXPECT_TRUE(blocks->block_diffusion);
  EXPECT_EQ(blocks->q_rows, 8);
  const auto tokens = attention_call(row_of("block-diffusion-token:2", "4x4"));
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->pairs, 8 + 4 + 10);
}

TEST(AttentionRows, NamesEveryFault) {
  const auto wrong = attention_call(row_of("causal", "5x4;7;0x3"));
  ASSERT_FALSE(wrong);
  ASSERT_EQ(wrong.error().size(), 3U);
  EXPECT_THAT(wrong.error()[0].to_string(), HasSubstr("\"5x4\" has queries that see no key"));
  EXPECT_THAT(wrong.error()[1].to_string(), HasSubstr("\"7\" is not QxK"));
  EXPECT_THAT(wrong.error()[2].to_string(), HasSubstr("\"0x3\" is not QxK"));
  const auto mask = attention_call(row_of("casual", "5x4"));
  ASSERT_FALSE(mask);
  EXPECT_THAT(mask.error()[0].to_string(), HasSubstr("causal"));
  EXPECT_FALSE(attention_call(row_of("block-diffusion:0", "4x4")));
  EXPECT_FALSE(attention_call(row_of("block-diffusion:4", "4x8")));
  EXPECT_FALSE(attention_call(row_of("full", "1x1073741824")));
}

TEST(AttentionRows, AreAllGoodAndNamedOnce) {
  for (const bool quick : {false, true}) {
    std::set<std::string> names;
    for (const AttentionRow& row : bench_rows(quick)) {
      EXPECT_TRUE(attention_call(row)) << row.name;
      EXPECT_TRUE(names.insert(row.name).second) << row.name;
    }
    EXPECT_GE(names.size(), quick ? 4U : 40U);
  }
}

}  // namespace
}  // namespace longhaul
