// Exact counts of block-diffusion training (csbp.md 2.2, 3.1, 4, 5).
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "sim/strategies/block_diffusion/plan.h"

namespace longhaul {
namespace {

std::vector<PlannedDocument> one(std::int64_t tokens) { return {{0, tokens}}; }

std::set<std::int64_t> positions(const std::vector<Shard>& shards) {
  std::set<std::int64_t> tokens;
  for (const Shard& shard : shards) {
    for (std::int64_t i = 0; i < shard.tokens; ++i) tokens.insert(shard.prefix + i);
  }
  return tokens;
}

// 2.2: totals L(L+b), and the ratios to L^2 printed there for L = 256K.
TEST(BdOracle, PairsOfOneDocument) {
  const std::int64_t length = 262144;
  const double printed[3] = {1.00012, 1.00098, 1.0156};
  const std::int64_t blocks[3] = {32, 256, 4096};
  for (int i = 0; i < 3; ++i) {
    const std::int64_t b = blocks[i];
    const BdPairs pairs = block_diffusion_pairs(length, b);
    EXPECT_EQ(pairs.noisy_local, length * b);
    EXPECT_EQ(pairs.noisy_clean, length * (length - b) / 2);
    EXPECT_EQ(pairs.clean, length * (length + b) / 2);
    EXPECT_EQ(pairs.total(), length * (length + b));
    const double ratio = static_cast<double>(pairs.total()) / static_cast<double>(length * length);
    EXPECT_NEAR(ratio, printed[i], i == 2 ? 5e-5 : 5e-6);
  }
  // The repository's unit tests: L = 8, b = 2 with token-causal clean, 76; Fast-dLLM v2's two views, 160.
  const BdPairs small = block_diffusion_pairs(8, 2);
  EXPECT_EQ(small.noisy_local + small.noisy_clean + causal_pairs(8), 76);
  EXPECT_EQ(2 * small.total(), 160);
}

// 3.1: N = 32, P = 8: rank 0 holds {0, 31, 1, 30}, prefix cost 62 on every rank.
TEST(BdOracle, DualEndExample) {
  const auto owned = dual_end_blocks(32, 8);
  EXPECT_EQ(owned[0], (std::vector<std::int64_t>{0, 31, 1, 30}));
  for (const auto& blocks : owned) EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}), 62);
}

// Odd N: the middle block to the lightest rank. N = 9, P = 2: pairs 0,1 and 2,3; each cost 16; block 4 to rank 0.
// N = 7, P = 2: one pair (cost 6) against two (cost 12): block 3 to rank 0.
TEST(BdOracle, DualEndOddAndFew) {
  EXPECT_EQ(dual_end_blocks(9, 2)[0], (std::vector<std::int64_t>{0, 8, 1, 7, 4}));
  EXPECT_EQ(dual_end_blocks(7, 2)[0], (std::vector<std::int64_t>{0, 6, 3}));
  // N/2 < P: longest first. 5 blocks on 4 ranks: 4, 3, 2, 1, then block 0 to the cheapest, rank 3.
  const auto few = dual_end_blocks(5, 4);
  EXPECT_EQ(few, (std::vector<std::vector<std::int64_t>>{{4}, {3}, {2}, {1, 0}}));
}

// Section 4: CSBP with 2P | N has L(L+b)/P pairs on every rank, and (fact 2) noisy and clean rows at the same
// positions.
TEST(BdOracle, CsbpIsBalancedAndColocated) {
  for (const std::int64_t ranks : {2, 4, 8, 16}) {
    for (const std::int64_t b : {4, 32}) {
      const std::int64_t length = 6 * ranks * b;
      const BdPlan plan = *plan_csbp(one(length), ranks, b);
      const BdLoads loads = bd_loads(plan);
      EXPECT_EQ(loads.imbalance, 1);
      for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
        EXPECT_EQ(loads.ranks[r].pairs.total() * ranks, length * (length + b));
        EXPECT_EQ(loads.ranks[r].padding, 0);
        const std::set<std::int64_t> noisy = positions(plan.ranks[r].noisy), clean = positions(plan.ranks[r].clean);
        EXPECT_EQ(noisy, clean);
        // Clean: zigzag chunks r and 2P-1-r.
        EXPECT_EQ(*clean.begin(), static_cast<std::int64_t>(r) * length / (2 * ranks));
        EXPECT_EQ(*clean.rbegin(), (2 * ranks - static_cast<std::int64_t>(r)) * length / (2 * ranks) - 1);
      }
    }
  }
}

// Section 4, token-offset: L(L+b)/(2P) + b^2 S(rn, (r+1)n) with n = N/P, S(a,z) = (z(z+1) - a(a+1))/2; max/mean
// 1.437 at P = 8 and 1.468 at P = 16 (3/2 - 1/(2P) as N grows).
TEST(BdOracle, OffsetPairsAndRatio) {
  for (const std::int64_t ranks : {2, 8, 16}) {
    const std::int64_t b = 256, length = 262144, n = length / b / ranks;
    const BdLoads loads = bd_loads(*plan_bd_offset_cp(one(length), ranks, b));
    for (std::int64_t r = 0; r < ranks; ++r) {
      const std::int64_t low = r * n, high = low + n;
      const std::int64_t sum = (high * (high + 1) - low * (low + 1)) / 2;
      EXPECT_EQ(loads.ranks[static_cast<std::size_t>(r)].pairs.total(),
                length * (length + b) / (2 * ranks) + b * b * sum);
    }
    EXPECT_NEAR(loads.imbalance, 1.5 - 1.0 / static_cast<double>(2 * ranks), 1e-3);
    if (ranks == 8) {
      EXPECT_EQ(std::floor(loads.imbalance * 1000), 1437);
    }
    if (ranks == 16) {
      EXPECT_EQ(std::floor(loads.imbalance * 1000), 1468);
    }
  }
}

// 3.1: offsets [r b/2P, (r+1) b/2P) and the mirrored tail; contiguous where b/P is odd.
TEST(BdOracle, OffsetOwnership) {
  const BdPlan even = *plan_bd_offset_cp(one(16), 2, 8);
  EXPECT_EQ(even.ranks[1].noisy, (std::vector<Shard>{{0, 2, 2, 16}, {0, 4, 2, 16}, {0, 10, 2, 16}, {0, 12, 2, 16}}));
  EXPECT_EQ(even.ranks[1].clean, (std::vector<Shard>{{0, 8, 8, 16}}));
  const BdPlan odd = *plan_bd_offset_cp(one(12), 2, 6);
  EXPECT_EQ(odd.ranks[1].noisy, (std::vector<Shard>{{0, 3, 3, 12}, {0, 9, 3, 12}}));
}

// Section 5, GB a layer at L = 262144, P = 8, F = 2: 2.82 and 5.64 (w = 1024), 1.41 and 2.82 (Qwen3.8 per TP2 rank,
// w = 512); exactly f G (F+1) and 2 f G (F+1).
TEST(BdOracle, BytesOfOneStep) {
  const std::int64_t length = 262144, ranks = 8;
  const BdPlan csbp = *plan_csbp(one(length), ranks, 256);
  const BdPlan offset = *plan_bd_offset_cp(one(length), ranks, 256);
  for (const bool recompute : {false, true}) {
    for (const std::int64_t width : {1024, 512}) {
      const std::int64_t gathered = 2 * length * width * 2;
      const std::int64_t expected = gathered / ranks * (ranks - 1) * (recompute ? 3 : 2);
      EXPECT_EQ(bd_sent_bytes(csbp, width, 2, recompute), expected);
      EXPECT_EQ(bd_sent_bytes(offset, width, 2, recompute), 2 * expected);
    }
  }
  EXPECT_NEAR(static_cast<double>(bd_sent_bytes(csbp, 1024, 2, true)) / 1e9, 2.82, 0.005);
  EXPECT_NEAR(static_cast<double>(bd_sent_bytes(offset, 1024, 2, true)) / 1e9, 5.64, 0.005);
  EXPECT_NEAR(static_cast<double>(bd_sent_bytes(csbp, 512, 2, true)) / 1e9, 1.41, 0.005);
  EXPECT_NEAR(static_cast<double>(bd_sent_bytes(offset, 512, 2, true)) / 1e9, 2.82, 0.005);
}

}  // namespace
}  // namespace longhaul
