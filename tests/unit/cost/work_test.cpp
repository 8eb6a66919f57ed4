// Tiles, waves and visited pairs against counts made by hand.
#include <gtest/gtest.h>

#include "sim/cost/kernel_features.h"

namespace longhaul {
namespace {

AttentionWork one(std::int64_t q, std::int64_t k, std::int64_t pairs) {
  AttentionWork work;
  work.add(AttentionPieceSize{q, k, pairs});
  return work;
}

std::int64_t causal(std::int64_t q, std::int64_t k) { return q * (k - q) + q * (q + 1) / 2; }

TEST(AttentionWork, FullPieceOfWholeTilesIsExact) {
  const AttentionWork work = one(256, 1024, 256 * 1024);
  EXPECT_EQ(work.q_tiles, 2);
  EXPECT_EQ(work.k_tiles, 8);
  EXPECT_EQ(work.forward_pairs, 256.0 * 1024);
  EXPECT_EQ(work.backward_pairs, 256.0 * 1024);
  EXPECT_EQ(work.unskipped_pairs, 256.0 * 1024);
  EXPECT_EQ(work.longest_forward_tile, 128.0 * 1024);
  EXPECT_EQ(work.longest_backward_tile, 128.0 * 256);
  EXPECT_TRUE(work.dense());
}

// One row of a piece pads to a whole query tile: 1 x 200 keys visits 128 x 256 pairs.
TEST(AttentionWork, OneRowVisitsWholeTiles) {
  const AttentionWork work = one(1, 200, 200);
  EXPECT_EQ(work.q_tiles, 1);
  EXPECT_EQ(work.k_tiles, 2);
  EXPECT_EQ(work.forward_pairs, 128.0 * 256);
  EXPECT_EQ(work.unskipped_pairs, 128.0 * 256);
}

// Causal 1024: a row sees 512.5 keys on average, a tile 512.5 + 128; 8 tiles x 128 rows x 640.5. By hand the tiles
// visit 128^2 (1 + ... + 8) = 589,824 pairs: half a tile a row (64.5 x 1024) less.
TEST(AttentionWork, CausalSquareIsHighByHalfATile) {
  const AttentionWork work = one(1024, 1024, causal(1024, 1024));
  EXPECT_EQ(work.forward_pairs, 8 * 128 * 640.5);
  EXPECT_EQ(work.forward_pairs - 64.5 * 1024, 128.0 * 128 * 36);
  EXPECT_EQ(work.unskipped_pairs, 1024.0 * 1024);  // a ragged backward skips nothing
}

// A mask sparser than causal: 1024 x 1024, each row sees 32 keys. A tile visits 32 + 128 keys; the ragged backward is
// charged twice that, not the square.
TEST(AttentionWork, SparseMaskIsNotChargedTheSquare) {
  const AttentionWork work = one(1024, 1024, 1024 * 32);
  EXPECT_EQ(work.backward_pairs, 8 * 128 * 160.0);
  EXPECT_EQ(work.unskipped_pairs, 2 * 8 * 128 * 160.0);
}

TEST(AttentionWork, DenseMeansOneSquareOrUnmaskedPiece) {
  EXPECT_TRUE(one(100, 100, causal(100, 100)).dense());
  EXPECT_TRUE(one(100, 300, 100 * 300).dense());
  EXPECT_FALSE(one(100, 300, causal(100, 300)).dense());
  AttentionWork two = one(100, 100, causal(100, 100));
  two.merge(one(100, 100, causal(100, 100)));
  EXPECT_FALSE(two.dense());
}

// 4096 x 4096: 32 x 32 = 1024 tiles over 132 multiprocessors = 8 waves.
TEST(GemmWork, CountsWavesOfTiles) {
  const KernelCall call = gemm_call(4096, 4096, 4096, 132);
  EXPECT_EQ(call.terms[0], 1);
  EXPECT_EQ(call.terms[1], 8.0 * (4096 + 512));
  EXPECT_EQ(call.terms[2], 2.0 * 4096 * 4096 * 4096);
  EXPECT_EQ(call.terms[3], 2.0 * (4096 - 512) * 4096 * 4096);
  EXPECT_EQ(call.memory_bytes, 2.0 * 3 * 4096 * 4096);
}

// 4 x 33 = 132 tiles fill one wave; one column more starts the second. Half a tile counts as one.
TEST(GemmWork, OneTileMoreStartsAWave) {
  EXPECT_EQ(gemm_call(512, 33 * 128, 1024, 132).terms[1], 1.0 * 1536);
  EXPECT_EQ(gemm_call(512, 33 * 128 + 1, 1024, 132).terms[1], 2.0 * 1536);
  EXPECT_EQ(gemm_call(449, 33 * 128, 1024, 132).terms[1], 1.0 * 1536);
  EXPECT_EQ(gemm_call(449, 33 * 128, 1024, 132).terms[3], 0.0);
}

// 32 heads x 8 query tiles = 256 items = 2 waves. Unmasked: every tile 128 x 8192, no tail. Causal 1024: mean tile
// 128 x 640.5, longest 128 x 1024; the tail is the difference.
TEST(AttentionTerms, WavesAndTailOfDenseCalls) {
  const KernelCall full = attention_call(true, one(1024, 8192, 1024 * 8192), 32, 8, 128, 132);
  EXPECT_EQ(full.kind, KernelKind::kAttentionForwardDense);
  EXPECT_EQ(full.terms[1], 2.0 * 128 * 8192);
  const KernelCall causal_call = attention_call(true, one(1024, 1024, causal(1024, 1024)), 32, 8, 128, 132);
  EXPECT_EQ(causal_call.terms[1], 2 * 128 * 640.5 + 128 * (1024 - 640.5));
  const KernelCall wide = attention_call(true, one(1024, 8192, 1024 * 8192), 32, 8, 256, 132);
  EXPECT_EQ(wide.terms[1], 2 * full.terms[1]);
}

// Two causal pieces of 1024: forward 32 x 16 items = 4 waves of the mean tile; backward 4 waves of unskipped tiles.
TEST(AttentionTerms, RaggedCallsShareTheirWaves) {
  AttentionWork work = one(1024, 1024, causal(1024, 1024));
  work.merge(work);
  const KernelCall forward = attention_call(true, work, 32, 8, 128, 128);
  EXPECT_EQ(forward.kind, KernelKind::kAttentionForwardRagged);
  EXPECT_EQ(forward.terms[1], 4 * 128 * 640.5);
  EXPECT_EQ(forward.terms[2], 32.0 * 16 / 128);
  EXPECT_EQ(forward.terms[3], 32.0 * 16 / 128);
  const KernelCall backward = attention_call(false, work, 32, 8, 128, 128);
  EXPECT_EQ(backward.kind, KernelKind::kAttentionBackwardRagged);
  EXPECT_EQ(backward.terms[1], 4 * 128 * 1024.0);
}

// Forward: Q and O of 32 heads, K and V of 8, bf16, head_dim 128.
TEST(AttentionTerms, MemoryCountsEveryOperandOnce) {
  const AttentionWork work = one(1000, 3000, 1000 * 3000);
  EXPECT_EQ(attention_call(true, work, 32, 8, 128, 132).memory_bytes, 2.0 * 128 * (2 * 32 * 1000 + 2 * 8 * 3000));
  EXPECT_EQ(attention_call(false, work, 32, 8, 128, 132).memory_bytes, 2.0 * 128 * (4 * 32 * 1000 + 4 * 8 * 3000));
}

TEST(CopyWork, CopyWithinTheDeviceMovesTwiceItsPayload) {
  EXPECT_EQ(copy_call(CopyKind::kDeviceToDevice, Bytes{1000}).terms[1], 2000.0);
  EXPECT_EQ(copy_call(CopyKind::kHostToDevice, Bytes{1000}).terms[1], 1000.0);
  EXPECT_EQ(copy_call(CopyKind::kDeviceToHost, Bytes{1000}).terms[1], 1000.0);
}

TEST(WorkDeathTest, EmptyCallsAreBugs) {
  EXPECT_DEATH(gemm_call(0, 1, 1, 132), "GEMM of 0 x 1 x 1");
  EXPECT_DEATH(one(0, 1, 1), "an attention piece is not empty");
  EXPECT_DEATH(attention_call(true, AttentionWork{}, 1, 1, 128, 132), "an attention launch has a piece");
  EXPECT_DEATH(attention_call(true, one(1, 1, 1), 3, 2, 128, 132), "attention with 3 heads over 2");
}

}  // namespace
}  // namespace longhaul
