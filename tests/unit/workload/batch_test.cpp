#include "sim/workload/batch.h"

#include <gtest/gtest.h>

#include "sim/workload/documents.h"

namespace longhaul {
namespace {

constexpr Objective kCausal{ObjectiveKind::kCausalLm, 0};
Objective blocks(std::int64_t block) { return {ObjectiveKind::kBlockDiffusion, block}; }

// The masks as csbp.md 2.1 words them, pair by pair.
std::int64_t pairs_by_enumeration(std::int64_t tokens, const Objective& objective) {
  std::int64_t count = 0;
  for (std::int64_t q = 0; q < tokens; ++q) {
    for (std::int64_t k = 0; k < tokens; ++k) {
      if (objective.kind == ObjectiveKind::kCausalLm) {
        count += k <= q;
        continue;
      }
      const std::int64_t i = q / objective.block_tokens;
      const std::int64_t j = k / objective.block_tokens;
      count += i == j;  // noisy to noisy
      count += j < i;   // noisy to clean
      count += j <= i;  // clean to clean
    }
  }
  return count;
}

TEST(Pairs, EqualEnumeration) {
  for (std::int64_t tokens = 1; tokens <= 40; ++tokens) {
    EXPECT_EQ(document_pairs(tokens, kCausal), pairs_by_enumeration(tokens, kCausal)) << tokens;
    for (std::int64_t block = 1; block <= 45; ++block) {
      EXPECT_EQ(document_pairs(tokens, blocks(block)), pairs_by_enumeration(tokens, blocks(block)))
          << tokens << " tokens, blocks of " << block;
    }
  }
}

// csbp.md 2.2: total = L(L+b) = b^2 N(N+1); L = 8, b = 2: 80, which two views make 160 (Fast-dLLM v2). The token-causal
// 76 of the same line is noisy 16 + 24 plus clean 36, so the block-causal clean part is 40.
TEST(Pairs, ExactValuesOfCsbp) {
  EXPECT_EQ(document_pairs(8, blocks(2)), 80);
  EXPECT_EQ(2 * document_pairs(8, blocks(2)), 160);
  EXPECT_EQ(document_pairs(8, blocks(2)) - 40 + document_pairs(8, kCausal), 76);
  for (const std::int64_t b : {32, 256, 4096}) {
    const std::int64_t L = 256 * 1024;
    EXPECT_EQ(document_pairs(L, blocks(b)), L * (L + b));
  }
}

// csbp.md 2.2: at L = 256K the total over L^2 is 1.00012, 1.00098 and 1.0156 for b = 32, 256, 4096.
TEST(Pairs, RatiosOfCsbp) {
  const double square = 262144.0 * 262144.0;
  EXPECT_NEAR(static_cast<double>(document_pairs(262144, blocks(32))) / square, 1.00012, 5e-6);
  EXPECT_NEAR(static_cast<double>(document_pairs(262144, blocks(256))) / square, 1.00098, 5e-6);
  EXPECT_NEAR(static_cast<double>(document_pairs(262144, blocks(4096))) / square, 1.0156, 5e-5);
}

// The largest document that is allowed does not overflow: x(x+1)/2 at 2^30.
TEST(Pairs, LargeDocuments) {
  EXPECT_EQ(document_pairs(std::int64_t{1} << 30, kCausal), (std::int64_t{1} << 59) + (std::int64_t{1} << 29));
}

TEST(PairsDeathTest, BlockOfZeroIsABug) { EXPECT_DEATH(document_pairs(8, blocks(0)), "block of 0 tokens"); }

TEST(Batch, CountsByHand) {
  const Batch causal = explicit_batch({{5, 3}, {1}}, kCausal);
  EXPECT_EQ(causal.tokens(), 9);
  EXPECT_EQ(batch_rows(causal), 9);
  EXPECT_EQ(batch_pairs(causal), 15 + 6 + 1);
  EXPECT_EQ(counted_tokens(causal), 4 + 2 + 0);  // a document's last token has no label
  EXPECT_EQ(batch_rows(explicit_batch({{5, 3}, {1}}, blocks(2))), 18);
}

TEST(Batch, CountedTokensAreTheCorruptedOnes) {
  const Batch batch = explicit_batch({{1, 63, 64}, {65, 1000}}, blocks(32));
  std::int64_t count = 0;
  for (std::size_t d = 0; d < batch.documents.size(); ++d) {
    for (std::int64_t p = 0; p < batch.documents[d]; ++p) count += is_corrupted(static_cast<DocumentId>(d), p);
  }
  EXPECT_EQ(counted_tokens(batch), count);
}

// A fair coin over n tokens is within 5 standard deviations (5 sqrt(n) / 2) of n / 2.
TEST(Batch, AboutHalfIsCorrupted) {
  const std::int64_t n = 1'000'000;
  EXPECT_NEAR(static_cast<double>(counted_tokens(explicit_batch({{n}}, blocks(32)))), 500'000, 2'500);
}

TEST(Tokens, SpreadOverTheVocabularyAndNeverTheMask) {
  std::vector<int> seen(96, 0);
  for (std::int64_t p = 0; p < 96'000; ++p) {
    const std::int64_t id = token_id(3, p, 97);
    ASSERT_GE(id, 0);
    ASSERT_LT(id, 96);
    ++seen[static_cast<std::size_t>(id)];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 5 * 31.7);  // sqrt(1000), 5 deviations
}

// Token ids and corruption enter losses and golden results: they must not move. Values of the first implementation.
TEST(Tokens, AreFixed) {
  EXPECT_EQ(token_id(0, 0, 128256), 70443);
  EXPECT_EQ(token_id(7, 1000, 97), 57);
  EXPECT_EQ(token_id(3, 12345, 151936), 139839);
  EXPECT_EQ(counted_tokens(explicit_batch({{1000}}, blocks(32))), 496);
}

}  // namespace
}  // namespace longhaul
