#include <gtest/gtest.h>

#include "sim/strategies/pipeline/sequence_processor.h"

namespace longhaul {
namespace {

using Documents = std::vector<std::int32_t>;

// One layer on one stage of one GPU: piece(first, t) = a t (2 first + t) + b t seconds.
StageCost quadratic(double a, double b) {
  DppCostModel model;
  model.forward.alpha1 = a;
  model.forward.alpha2 = b;
  return StageCost(model, 1, {1, 1, 1});
}

// a = 1, b = 0: x_j = 30 sqrt(j / 9), so x_1 = 10, x_4 = 20, x_9 = 30 exactly and the others rounded.
TEST(SliceMesh, CutsAreTheClosedForm) {
  const std::optional<SliceMesh> mesh = make_mesh(quadratic(1, 0), 30, 9, 1);
  ASSERT_TRUE(mesh.has_value());
  EXPECT_EQ(mesh->cuts, (std::vector<std::int64_t>{0, 10, 14, 17, 20, 22, 24, 26, 28, 30}));
  EXPECT_EQ(mesh->cell_seconds, 30 * 30 - 28 * 28);  // 116, the slowest after rounding; 100 unrounded
  EXPECT_EQ(mesh->most_tokens(), 10);
}

// Cuts are multiples of sp but for the end of the document: 15, 21.2 and 26.0 go to the nearest multiple of 4.
TEST(SliceMesh, RoundsToTheSequenceParallelDegree) {
  EXPECT_EQ(make_mesh(quadratic(1, 0), 30, 4, 4)->cuts, (std::vector<std::int64_t>{0, 16, 20, 24, 30}));
  EXPECT_FALSE(make_mesh(quadratic(1, 0), 30, 9, 4).has_value());  // 14.1 and 17.3 both round to 16
  EXPECT_FALSE(make_mesh(quadratic(0, 1), 3, 4, 1).has_value());
}

// Equal times for a real model's ratio: each cell within what sp/2 tokens at each of its ends cost.
TEST(SliceMesh, CellsTakeEqualTime) {
  const StageCost cost = quadratic(1e-12, 5e-8);
  constexpr std::int64_t kLongest = 1'048'576;
  for (std::int32_t slices = 1; slices <= 64; ++slices) {
    const std::optional<SliceMesh> mesh = make_mesh(cost, kLongest, slices, 8);
    ASSERT_TRUE(mesh.has_value());
    ASSERT_EQ(mesh->slices(), slices);
    const double equal = cost.piece(0, kLongest) / slices;
    for (std::size_t j = 0; j + 1 < mesh->cuts.size(); ++j) {
      const double seconds = cost.piece(mesh->cuts[j], mesh->cuts[j + 1] - mesh->cuts[j]);
      EXPECT_NEAR(seconds, equal, cost.piece(mesh->cuts[j + 1], 8) + 1e-12);
      EXPECT_LE(seconds, mesh->cell_seconds);
    }
  }
}

TEST(SliceMesh, SlicesOfALengthAreTheCellsThatItReaches) {
  const SliceMesh mesh{{0, 10, 14}, 200};
  EXPECT_EQ(mesh.slices_of(1), 1);
  EXPECT_EQ(mesh.slices_of(10), 1);
  EXPECT_EQ(mesh.slices_of(11), 2);
  EXPECT_EQ(mesh.slices_of(14), 2);
}

// Algorithm 1 by hand. a = 1, b = 10, T_t = 200, T_m = 10, mesh 0, 10, 14. (time, tokens):
// document 0 fills both its cells: no tail. Tails: 1 (12 tokens) 2 x 22 + 20 = (64, 2); 2 (13) 3 x 23 + 30 = (99, 3).
// Shorts, longest first: 3 (144, 8), 4 (96, 6), 5 (75, 5), 6 (11, 1).
//  3: ascending time/token is tail 1 (32), tail 2 (33). Tail 1: 208 > 200. Tail 2: 11 > 10 tokens. So T_t = 208,
//  tail 1. 4: tail 1 is full. Tail 2: 195, 9 tokens: fits. 5: the least tokens are 9, 14 > 10: a new bucket (75, 5). 6:
//  ascending: the new bucket (15), tail 1 (20.8, full), tail 2 (21.7, fits too): the new one.
TEST(SequenceProcessor, Algorithm1ByHand) {
  const ProcessedDocuments processed =
      process_documents({14, 12, 13, 8, 6, 5, 1}, quadratic(1, 10), {{0, 10, 14}, 200}, 10);
  EXPECT_EQ(processed.slices, (Documents{2, 2, 2, 1, 1, 1, 1}));
  EXPECT_EQ(processed.tail_bucket, (Documents{-1, 0, 1, -1, -1, -1, -1}));
  ASSERT_EQ(processed.buckets.size(), 3u);
  EXPECT_EQ(processed.buckets[0].owner, 1);
  EXPECT_EQ(processed.buckets[0].shorts, Documents{3});
  EXPECT_EQ(processed.buckets[1].owner, 2);
  EXPECT_EQ(processed.buckets[1].shorts, Documents{4});
  EXPECT_EQ(processed.buckets[2].owner, -1);
  EXPECT_EQ(processed.buckets[2].shorts, (Documents{5, 6}));
  EXPECT_EQ(processed.buckets[0].seconds, 208);
  EXPECT_EQ(processed.buckets[1].seconds, 195);
  EXPECT_EQ(processed.buckets[2].seconds, 86);
  EXPECT_EQ(processed.target_seconds, 208);
}

// The rule is time per token, not time: after the tail (64, 2: 32 a token), document 2 (171, 9: 19 a token) opens a
// bucket (2 + 9 > 10 tokens), and document 3 (11, 1) joins that one although the tail's has less time and room.
TEST(SequenceProcessor, LeastTimePerTokenIsServedFirst) {
  const ProcessedDocuments processed = process_documents({14, 12, 9, 1}, quadratic(1, 10), {{0, 10, 14}, 200}, 10);
  ASSERT_EQ(processed.buckets.size(), 2u);
  EXPECT_TRUE(processed.buckets[0].shorts.empty());
  EXPECT_EQ(processed.buckets[1].shorts, (Documents{2, 3}));
  EXPECT_EQ(processed.target_seconds, 200);
}

// The guard of dpp.md 3: the bucket with the least time may be the one that is full. Tail (3 x 43 + 30 = 159, 3);
// document 2 (144, 8) opens a bucket; document 3 (96, 6) fits only the tail by tokens, at 255 > 200. Loosening by the
// least time of all, 144 + 96 = 240, would never let it in.
TEST(SequenceProcessor, LooseningLooksOnlyAtBucketsWithRoom) {
  const ProcessedDocuments processed = process_documents({25, 23, 8, 6}, quadratic(1, 10), {{0, 10, 20, 25}, 200}, 10);
  ASSERT_EQ(processed.buckets.size(), 2u);
  EXPECT_EQ(processed.buckets[0].owner, 1);
  EXPECT_EQ(processed.buckets[0].shorts, Documents{3});
  EXPECT_EQ(processed.buckets[1].shorts, Documents{2});
  EXPECT_EQ(processed.target_seconds, 255);
}

// f = 3/5 of the layers on the slower of 2 stages, 4 GPUs a stage; recompute adds one forward:
// attention 0.6 / 4 x (2 x 1 + 2.5) = 0.675; linear 0.6 / 4 x (2 x 10 + 20) + 3 x (2 x 1 + 1) = 15;
// fixed 0.6 x (2 x 5 + 7) + 3 x (2 x 0.5 + 0.5) = 14.7.
TEST(StageCost, IsEquation1OnTheSlowestStage) {
  DppCostModel model;
  model.forward = {1, 10, 5, 1, 0.5};
  model.backward = {2.5, 20, 7, 1, 0.5};
  model.recompute = true;
  const StageCost cost(model, 5, {1, 2, 4});
  EXPECT_DOUBLE_EQ(cost.attention(), 0.675);
  EXPECT_DOUBLE_EQ(cost.linear(), 15);
  EXPECT_DOUBLE_EQ(cost.fixed(), 14.7);
  PipelineChunk chunk;  // C = 3, s0 = 2, one more document of 4: (5^2 - 3^2) + 4^2 = 32, 6 tokens
  chunk.pieces = {{.document = 0, .first = 3, .tokens = 2}, {.document = 1, .first = 0, .tokens = 4}};
  EXPECT_DOUBLE_EQ(cost.chunk(chunk), 0.675 * 32 + 15 * 6 + 14.7);
  // Forward alone: 0.15 x 32 + (0.15 x 10 + 3) x 6 + 0.6 x 5 + 1.5.
  EXPECT_DOUBLE_EQ(cost.chunk_forward(chunk), 4.8 + 27 + 4.5);
}

}  // namespace
}  // namespace longhaul
