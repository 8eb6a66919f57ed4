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

TEST(AttentionWork, MasksFollowFromThePairs) {
  EXPECT_EQ(mask_of({4, 8, 32}), PieceMask::kFull);
  EXPECT_EQ(mask_of({4, 4, 10}), PieceMask::kSquareCausal);
  EXPECT_EQ(mask_of({4, 8, 26}), PieceMask::kOffsetCausal);
  EXPECT_EQ(mask_of({4, 4, 8}), PieceMask::kOther);   // blocks of 2
  EXPECT_EQ(mask_of({8, 4, 26}), PieceMask::kOther);  // more queries than keys
  EXPECT_EQ(mask_of({1, 5, 5}), PieceMask::kFull);
}

TEST(AttentionWork, FullPieceOfWholeTilesIsExact) {
  const AttentionWork work = one(256, 1024, 256 * 1024);
  EXPECT_EQ(work.q_tiles, 2);
  EXPECT_EQ(work.k_tiles, 8);
  EXPECT_EQ(work.forward_tiles, 16);
  EXPECT_EQ(work.backward_tiles, 16);
  EXPECT_EQ(work.unskipped_tiles, 16);
  EXPECT_EQ(work.longest_forward_tile, 8);
  EXPECT_EQ(work.longest_backward_tile, 2);
  EXPECT_EQ(work.pairs, work.all_pairs);
}

// 1,000 squared: 8 x 8 tiles, 36 of them on and below the diagonal. 300 queries at the end of 1,000 keys: 3 x 8 tiles;
// query tiles end at keys 828, 956 and 1,000: 7, 8 and 8 tiles. Key tiles 0 to 6 (offset 700: 6 tiles round up to its
// end) are seen by all 3, the last one by the last 2.
TEST(AttentionWork, CausalTilesByHand) {
  const AttentionWork square = one(1000, 1000, causal(1000, 1000));
  EXPECT_EQ(square.forward_tiles, 36);
  EXPECT_EQ(square.backward_tiles, 36);
  EXPECT_EQ(square.unskipped_tiles, 64);
  EXPECT_EQ(square.mask(), PieceMask::kSquareCausal);
  const AttentionWork end = one(300, 1000, causal(300, 1000));
  EXPECT_EQ(end.forward_tiles, 7 + 8 + 8);
  EXPECT_EQ(end.backward_tiles, 7 * 3 + 2);
  EXPECT_EQ(end.mask(), PieceMask::kOffsetCausal);
}

// Against every block of 64 looked at one by one: query row r sees keys up to r + offset.
TEST(AttentionWork, BlocksAreThoseWithAnUnmaskedPair) {
  for (const std::int64_t q : {1, 2, 63, 64, 65, 127, 128, 129, 200, 300, 513}) {
    for (const std::int64_t offset : {0, 1, 40, 63, 64, 65, 127, 128, 130, 192, 500}) {
      const std::int64_t k = q + offset;
      std::int64_t by_queries = 0, by_keys = 0;
      for (std::int64_t tile = 0; tile < q; tile += kAttentionTile) {
        const std::int64_t last = std::min(tile + kAttentionTile, q) - 1;
        for (std::int64_t block = 0; block < k; block += kAttentionBlock) by_queries += block <= last + offset;
      }
      for (std::int64_t tile = 0; tile < k; tile += kAttentionTile) {
        for (std::int64_t block = 0; block < q; block += kAttentionBlock) {
          by_keys += tile <= std::min(block + kAttentionBlock, q) - 1 + offset;
        }
      }
      const AttentionPieceSize piece{q, k, causal(q, k)};
      EXPECT_EQ(forward_blocks_of(piece), by_queries) << q << " x " << k;
      EXPECT_EQ(backward_blocks_of(piece), by_keys) << q << " x " << k;
      const AttentionPieceSize all{q, k, q * k};
      EXPECT_EQ(forward_blocks_of(all), ((q + 127) / 128) * ((k + 63) / 64));
      EXPECT_EQ(backward_blocks_of(all), ((k + 127) / 128) * ((q + 63) / 64));
    }
  }
  AttentionWork two = one(128, 128, causal(128, 128));
  two.merge(one(60, 200, 60 * 200));
  EXPECT_EQ(two.forward_blocks, 2 + 4);
  EXPECT_EQ(two.backward_blocks, 2 + 2);
  // A mask of 32 keys a row: half a tile for the edge and half a block for rounding.
  EXPECT_EQ(one(1024, 1024, 1024 * 32).forward_blocks, 8 * (0.5 + 1.5));
}

// 100 causal rows: 2, 4 and 7 tiles of 64, 32 and 16 rows; a row sees 50.5 keys in the mean, and 64 more for rounding
// and 32, 16 and 8 for the edge are more than the one key tile but for the last: 122.5. 40 rows that see all of 300
// keys: 1, 2 and 3 tiles that visit 384. 256 rows at the end of 1,000 keys: 4, 8 and 16 tiles; 744 + 128.5 keys, and
// with 64 and 8 944.5 of 1,024.
TEST(AttentionWork, HeadsPackedByHand) {
  AttentionWork work = one(100, 100, causal(100, 100));
  work.add({40, 300, 40 * 300});
  work.merge(one(256, 1000, causal(256, 1000)));
  EXPECT_EQ(work.packed[0].tiles, 2 + 1 + 4);
  EXPECT_EQ(work.packed[1].tiles, 4 + 2 + 8);
  EXPECT_EQ(work.packed[2].tiles, 7 + 3 + 16);
  EXPECT_DOUBLE_EQ(work.packed[0].pairs, 128 * 128 + 64 * 384 + 256 * (872.5 + 64 + 32));
  EXPECT_DOUBLE_EQ(work.packed[2].pairs, 112 * 122.5 + 48 * 384 + 256 * 944.5);
}

// A block-diagonal mask, 1,024 x 1,024 with 32 keys a row: a tile visits 32 / 128 + 1 tiles of the other side.
TEST(AttentionWork, OtherMasksAreEstimated) {
  const AttentionWork work = one(1024, 1024, 1024 * 32);
  EXPECT_EQ(work.forward_tiles, 8 * 1.25);
  EXPECT_EQ(work.backward_tiles, 8 * 1.25);
  EXPECT_EQ(work.forward_pairs, 8 * 1.25 * 128 * 128);
  EXPECT_FALSE(work.dense());
}

TEST(AttentionWork, DenseMeansPiecesOfOneSizeAndMask) {
  EXPECT_TRUE(one(100, 100, causal(100, 100)).dense());
  EXPECT_TRUE(one(100, 300, 100 * 300).dense());
  EXPECT_TRUE(one(100, 300, causal(100, 300)).dense());
  AttentionWork two = one(100, 100, causal(100, 100));
  two.merge(one(100, 100, causal(100, 100)));
  EXPECT_TRUE(two.dense());
  EXPECT_EQ(two.mask(), PieceMask::kSquareCausal);
  two.merge(one(100, 101, causal(100, 101)));
  EXPECT_FALSE(two.dense());
  EXPECT_EQ(two.mask(), PieceMask::kOffsetCausal);
  two.merge(one(100, 100, 100 * 100));
  EXPECT_EQ(two.mask(), PieceMask::kOther);
}

TEST(AttentionWork, KeepsTheLastPieces) {
  AttentionWork work;
  for (std::int64_t i = 1; i <= 20; ++i) work.add({128 * i, 128 * i, causal(128 * i, 128 * i)});
  ASSERT_EQ(work.kept_count(), kKeptPieces);
  for (std::size_t i = 0; i < kKeptPieces; ++i) EXPECT_EQ(work.kept(i).q_tiles, static_cast<std::int64_t>(i) + 5);
}

// ---- spans: 4 multiprocessors unless said

AttentionItems forward_of(std::int64_t heads) {
  AttentionItems items;
  items.heads = heads;
  return items;
}

// Query tiles of 1 to 4 key tiles, one more each for the item: 2, 3, 4, 5 begin together.
TEST(AttentionSpan, OneHeadEndsWithItsLongestTile) {
  EXPECT_EQ(attention_span(one(512, 512, causal(512, 512)), forward_of(1), 4), 5);
}

// Two heads on 4: 2 3 4 5 begin at 0; the next head's 2 at 2, its 3 at 3, and at 4 two are free for 4 and 5: 9. Longest
// first: 5 5 4 4, then 3 3 at 4, then 2 2 at 5: 7.
TEST(AttentionSpan, OrderDecidesTheTail) {
  const AttentionWork work = one(512, 512, causal(512, 512));
  AttentionItems items = forward_of(2);
  EXPECT_EQ(attention_span(work, items, 4), 9);
  items.order = ItemOrder::kLongestFirst;
  EXPECT_EQ(attention_span(work, items, 4), 7);
}

// Backward, one head: key tiles seen by 4, 3, 2, 1 query tiles. On 2: 5 and 4 begin, 3 at 4, 2 at 5: 7. Without
// skipping four items of 5 on 2: 10. Our kernels go through both query heads of a key head in one item: 9 7 5 3 -> 12.
TEST(AttentionSpan, BackwardByHand) {
  const AttentionWork work = one(512, 512, causal(512, 512));
  AttentionItems items;
  items.forward = false;
  EXPECT_EQ(attention_span(work, items, 2), 7);
  items.skips_masked = false;
  EXPECT_EQ(attention_span(work, items, 2), 10);
  items.skips_masked = true;
  items.tiles_a_tile = 2;
  EXPECT_EQ(attention_span(work, items, 2), 12);
}

// 16 x 8 tiles with half of the pairs: query tiles see 512 / 128 + 1 = 5 key tiles in the mean, from 2 to 8 (a line
// that ends at all 8), key tiles 9 query tiles, from 16 to 2. The middles of 16 and 8 parts: 15/16 and 7/8 of the way.
TEST(PieceTiles, BlockRulesAreRampsAndBandsAreFlat) {
  const PieceTiles ramp = tiles_of({2048, 1024, 1024 * 1024});
  EXPECT_DOUBLE_EQ(ramp.forward_cost(0), 5 - 3 * 15.0 / 16);
  EXPECT_DOUBLE_EQ(ramp.forward_cost(15), 5 + 3 * 15.0 / 16);
  EXPECT_DOUBLE_EQ(ramp.backward_cost(0), 9 + 7 * 7.0 / 8);
  EXPECT_DOUBLE_EQ(ramp.backward_cost(7), 9 - 7 * 7.0 / 8);
  EXPECT_DOUBLE_EQ(ramp.forward_tiles(), 16 * 5);
  EXPECT_DOUBLE_EQ(ramp.backward_tiles(), 8 * 9);
  const PieceTiles band = tiles_of({1024, 1024, 1024 * 64});
  EXPECT_DOUBLE_EQ(band.forward_cost(0), 1.5);
  EXPECT_DOUBLE_EQ(band.forward_cost(7), 1.5);
}

// Equal items come out as waves however many there are: 1,000 heads x 8 tiles of 16 + 1 on 132: 61 waves.
TEST(AttentionSpan, EqualItemsAreWaves) {
  EXPECT_EQ(attention_span(one(1024, 2048, 1024 * 2048), forward_of(1000), 132), 61 * 17);
}

// The end is simulated, the rest is a sum: 64 heads of 64 causal tiles. By a list schedule of all 4,096 items in a
// separate program: 1,080.
TEST(AttentionSpan, LongLaunchesAreCloseToTheWholeSchedule) {
  EXPECT_NEAR(attention_span(one(8192, 8192, causal(8192, 8192)), forward_of(64), 132), 1080, 5);
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

// Unmasked 1,024 x 8,192, 32 heads: 256 items of 64 + 1 tiles on 132: two waves; 256 x 64 tiles keep them busy. Head
// dimension 256: the products double, the exponentials (0.62 of them) do not, and once more as wide tiles.
TEST(AttentionTerms, SpansGoToTheTermOfTheirMask) {
  const AttentionLayout cudnn = attention_layout("cudnn");
  const AttentionWork full = one(1024, 8192, 1024 * 8192);
  const KernelCall call = attention_call(cudnn, true, full, 32, 8, 128, 132);
  EXPECT_EQ(call.kind, KernelKind::kAttentionForwardDense);
  EXPECT_DOUBLE_EQ(call.terms[1], 130);
  EXPECT_EQ(call.terms[2] + call.terms[3] + call.terms[5] + call.terms[6] + call.terms[8], 0);
  EXPECT_DOUBLE_EQ(call.terms[4], 256.0 * 64 / 132);
  const KernelCall wide = attention_call(cudnn, true, full, 32, 8, 256, 132);
  EXPECT_NEAR(wide.terms[1], 130 * 2.62 / 1.62, 1e-9);
  EXPECT_DOUBLE_EQ(wide.terms[4], 2 * 256.0 * 64 / 132);
  EXPECT_DOUBLE_EQ(wide.terms[8], 130);
  // Backward: 64 key tiles of 8, in halves of 4 + 1 beyond dimension 128: 32 x 64 x 2 = 4,096 items on 132, 32 waves
  // (31 hold 4,092).
  EXPECT_DOUBLE_EQ(attention_call(cudnn, false, full, 32, 8, 256, 132).terms[8], 32 * 5);
  EXPECT_DOUBLE_EQ(attention_call(cudnn, false, full, 32, 8, 128, 132).terms[8], 0);
  const AttentionWork square = one(1024, 1024, causal(1024, 1024));
  EXPECT_GT(attention_call(cudnn, true, square, 32, 8, 128, 132).terms[2], 0);
  EXPECT_GT(attention_call(cudnn, true, one(100, 300, causal(100, 300)), 32, 8, 128, 132).terms[3], 0);
}

// cuDNN's backward skips masked tiles under the top-left mask alone: one head of 512 squared on one multiprocessor, 10
// visited tiles and 4 items; with one key more 4 x 5 tiles and 5 items.
TEST(AttentionTerms, OffsetCallsSkipNothingInBackward) {
  const AttentionLayout cudnn = attention_layout("cudnn");
  EXPECT_DOUBLE_EQ(attention_call(cudnn, false, one(512, 512, causal(512, 512)), 1, 1, 128, 1).terms[2], 14);
  const KernelCall offset = attention_call(cudnn, false, one(512, 513, causal(512, 513)), 1, 1, 128, 1);
  EXPECT_DOUBLE_EQ(offset.terms[3], 25);
  EXPECT_EQ(offset.terms[6], 2.0 * 128 * 512);
  EXPECT_EQ(offset.terms[7], 2.0 * 128 * 513);
}

// Sequences of 1 and 3 query tiles: a grid of 3 each; 2 idle slots a head.
TEST(AttentionTerms, RaggedGridsHaveIdleSlots) {
  AttentionWork work = one(100, 100, causal(100, 100));
  work.merge(one(300, 300, causal(300, 300)));
  const KernelCall call = attention_call(attention_layout("cudnn"), true, work, 32, 8, 128, 64);
  EXPECT_EQ(call.kind, KernelKind::kAttentionForwardRagged);
  EXPECT_EQ(call.terms[5], 32 * 2 / 64.0);
  EXPECT_EQ(attention_call(attention_layout("longhaul-hopper"), true, work, 32, 8, 128, 64).terms[5], 0);
}

TEST(AttentionForms, FollowFromTheList) {
  const AttentionLayout cudnn = attention_layout("cudnn");
  AttentionWork work = one(100, 100, causal(100, 100));
  EXPECT_EQ(attention_form(cudnn, work), AttentionForm::kDense);
  work.merge(one(200, 200, causal(200, 200)));
  EXPECT_EQ(attention_form(cudnn, work), AttentionForm::kRagged);
  EXPECT_EQ(attention_form(attention_layout("longhaul-hopper"), work), AttentionForm::kPieces);
  work.merge(one(200, 300, causal(200, 300)));
  EXPECT_EQ(attention_form(cudnn, work), AttentionForm::kRaggedOffset);
  EXPECT_TRUE(one_call(cudnn, work, true));
  work.merge(one(200, 300, 200 * 300));
  EXPECT_FALSE(one_call(cudnn, work, true));
  EXPECT_TRUE(one_call(attention_layout("longhaul-hopper"), work, true));
  EXPECT_EQ(attention_class("cudnn", false, AttentionForm::kRaggedOffset), "attention/cudnn/backward/ragged-offset");
}

// A single query sees all of its keys, so it is the last row of a causal piece as well as a full one.
TEST(AttentionForms, ASingleQueryGoesWithEitherMask) {
  const AttentionLayout cudnn = attention_layout("cudnn");
  AttentionWork squares = one(1, 1, 1);
  EXPECT_EQ(squares.mask(), PieceMask::kFull);
  squares.merge(one(100, 100, causal(100, 100)));
  EXPECT_EQ(squares.mask(), PieceMask::kSquareCausal);
  squares.merge(one(1, 500, 500));
  EXPECT_EQ(squares.mask(), PieceMask::kOffsetCausal);
  EXPECT_EQ(attention_form(cudnn, squares), AttentionForm::kRaggedOffset);
  AttentionWork full = one(1, 500, 500);
  full.merge(one(100, 300, 100 * 300));
  EXPECT_EQ(full.mask(), PieceMask::kFull);
  full.merge(squares);
  EXPECT_EQ(full.mask(), PieceMask::kOther);
}

// Gradients of shared key rows would overwrite each other in cuDNN's backward call; its forward call only reads them.
TEST(AttentionForms, PiecesThatShareKeysHaveNoBackwardCall) {
  AttentionWork work = one(100, 300, causal(100, 300));
  AttentionWork other = one(100, 500, causal(100, 500));
  other.shared_keys = true;
  work.merge(other);
  EXPECT_TRUE(one_call(attention_layout("cudnn"), work, true));
  EXPECT_FALSE(one_call(attention_layout("cudnn"), work, false));
  EXPECT_TRUE(one_call(attention_layout("longhaul-hopper"), work, false));
}

// kernels/elementwise/cross_entropy_cluster.cu: 512 threads x 64 logits a block, clusters of 1, 2, 4 and 8. Of 128,256
// logits a row takes the room of 131,072, of 152,064 that of 262,144, beyond which rows are read twice: 6 bytes for 4.
TEST(ElementwiseTerms, ARowOfLogitsIsTheRoomOfItsCluster) {
  constexpr const char* kFunction = "cross_entropy_with_gradient";
  EXPECT_EQ(row_work(kFunction, 8192).stretch, 4);
  EXPECT_EQ(row_work(kFunction, 32768).stretch, 1);
  EXPECT_DOUBLE_EQ(row_work(kFunction, 32769).stretch, 65536.0 / 32769);
  EXPECT_DOUBLE_EQ(row_work(kFunction, 128256).stretch, 131072.0 / 128256);
  EXPECT_DOUBLE_EQ(row_work(kFunction, 152064).stretch, 262144.0 / 152064);
  EXPECT_EQ(row_work(kFunction, 262145).stretch, 1.5);
  EXPECT_EQ(row_work("cross_entropy", 152064).stretch, 1);
  // 10 rows x 131,072 logits x 4 bytes, whatever starts a row.
  const KernelCall call = elementwise_call(Bytes{10 * 128256 * 4}, kFunction, 10, 128256);
  EXPECT_DOUBLE_EQ(call.terms[1], 10 * 131072 * 4);
  EXPECT_EQ(call.terms[2], 0);
}

// kernels/elementwise/rms_norm.cu: 2 blocks of 256 threads a multiprocessor up to 4,096 columns, one of 512 up to
// 8,192; beyond, x and dy are read twice and dx written once: 10 bytes for 6.
TEST(ElementwiseTerms, BackwardOfRmsNormStartsAsManyRowsAsFit) {
  constexpr const char* kFunction = "rms_norm_backward";
  EXPECT_EQ(elementwise_call(Bytes{64}, kFunction, 10, 4096).terms[2], 10);
  EXPECT_EQ(elementwise_call(Bytes{64}, kFunction, 10, 4097).terms[2], 20);
  EXPECT_EQ(elementwise_call(Bytes{64}, kFunction, 10, 8192).terms[1], 64);
  EXPECT_DOUBLE_EQ(elementwise_call(Bytes{60}, kFunction, 10, 8193).terms[1], 100);
  EXPECT_EQ(elementwise_call(Bytes{64}, "rms_norm", 10, 8193).terms[2], 10);
  EXPECT_EQ(elementwise_call(Bytes{64}).terms[2], 0);
}

// Forward: Q and O of 32 heads, K and V of 8, bf16, head_dim 128.
TEST(AttentionTerms, MemoryCountsEveryOperandOnce) {
  const AttentionWork work = one(1000, 3000, 1000 * 3000);
  const AttentionLayout cudnn = attention_layout("cudnn");
  EXPECT_EQ(attention_call(cudnn, true, work, 32, 8, 128, 132).memory_bytes,
            2.0 * 128 * (2 * 32 * 1000 + 2 * 8 * 3000));
  EXPECT_EQ(attention_call(cudnn, false, work, 32, 8, 128, 132).memory_bytes,
            2.0 * 128 * (4 * 32 * 1000 + 4 * 8 * 3000));
}

TEST(CopyWork, CopyWithinTheDeviceMovesTwiceItsPayload) {
  EXPECT_EQ(copy_call(CopyKind::kDeviceToDevice, Bytes{1000}).terms[1], 2000.0);
  EXPECT_EQ(copy_call(CopyKind::kHostToDevice, Bytes{1000}).terms[1], 1000.0);
  EXPECT_EQ(copy_call(CopyKind::kDeviceToHost, Bytes{1000}).terms[1], 1000.0);
}

TEST(WorkDeathTest, EmptyCallsAreBugs) {
  EXPECT_DEATH(gemm_call(0, 1, 1, 132), "GEMM of 0 x 1 x 1");
  EXPECT_DEATH(one(0, 1, 1), "an attention piece is not empty");
  EXPECT_DEATH(attention_call({}, true, AttentionWork{}, 1, 1, 128, 132), "an attention launch has a piece");
  EXPECT_DEATH(attention_call({}, true, one(1, 1, 1), 3, 2, 128, 132), "attention with 3 heads over 2");
}

}  // namespace
}  // namespace longhaul
