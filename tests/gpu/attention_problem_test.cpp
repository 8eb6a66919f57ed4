// Which attention calls cuDNN is asked to make, and with what words the others are refused. No cuDNN in here.

#include "kernels/cudnn/attention_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/gpu/attention_cases.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

CudnnAttentionProblem good() {
  return {8, 2, 128, CudnnMask::kCausalBottomRight, {{0, 10, 0, 10}, {10, 5, 10, 20}}, false};
}

TEST(CudnnProblem, TakesWhatItSupports) {
  EXPECT_THAT(refusals(good(), false), IsEmpty());
  EXPECT_THAT(refusals(good(), true), IsEmpty());
}

TEST(CudnnProblem, NamesEveryReason) {
  CudnnAttentionProblem problem = good();
  problem.head_dim = 96;
  problem.kv_heads = 3;
  problem.sequences[1].q_count = 30;
  EXPECT_THAT(refusals(problem, false),
              ElementsAre("head dimension 96; supported are 64, 128 and 256",
                          HasSubstr("8 query heads for 3 key heads"), HasSubstr("sequence 1: 30 queries for 20 keys")));
}

TEST(CudnnProblem, RefusesSizesThatOverflow) {
  CudnnAttentionProblem problem = good();
  problem.sequences[1].k_row = (std::int64_t{1} << 31) - 20;
  EXPECT_THAT(refusals(problem, false), ElementsAre(HasSubstr("stay below 2^31")));
  problem.sequences[1] = {-1, 5, 10, 0};
  EXPECT_THAT(refusals(problem, false), ElementsAre(HasSubstr("query rows -1 + 5, key rows 10 + 0")));
  problem.sequences.clear();
  EXPECT_THAT(refusals(problem, false), ElementsAre(HasSubstr("no sequences")));
}

TEST(CudnnProblem, SharesKeysForwardOnly) {
  CudnnAttentionProblem problem = good();
  problem.sequences[1].k_row = 5;
  EXPECT_THAT(refusals(problem, false), IsEmpty());
  EXPECT_THAT(refusals(problem, true), ElementsAre(HasSubstr("share key rows")));
  problem.sequences[1].q_row = 9;
  EXPECT_THAT(refusals(problem, false), ElementsAre(HasSubstr("share query rows")));
}

TEST(CudnnProblem, KnowsADenseBatch) {
  EXPECT_TRUE(is_dense(std::vector<CudnnSequence>{{7, 10, 3, 20}}));
  EXPECT_TRUE(is_dense(std::vector<CudnnSequence>{{0, 10, 0, 20}, {10, 10, 20, 20}}));
  EXPECT_FALSE(is_dense(std::vector<CudnnSequence>{{0, 10, 0, 20}, {11, 10, 20, 20}}));
  EXPECT_FALSE(is_dense(std::vector<CudnnSequence>{{0, 10, 0, 20}, {10, 9, 20, 20}}));
}

TEST(CudnnProblem, ReadsMasksOffPieces) {
  const Piece square = bottom_right(0, 10, 0, 10);
  const Piece shard = bottom_right(10, 5, 10, 20);
  Piece top_left = piece_of(10, 5, 10, 20, MaskRule::kCausal);
  const auto mask_of = [](const std::vector<Piece>& pieces) { return problem_of_pieces(pieces, 8, 2, 128).mask; };
  EXPECT_EQ(mask_of({square, bottom_right(10, 5, 10, 5)}), CudnnMask::kCausalTopLeft);
  EXPECT_EQ(mask_of({square, shard}), CudnnMask::kCausalBottomRight);
  EXPECT_EQ(mask_of({shard, square}), CudnnMask::kCausalBottomRight);
  EXPECT_EQ(mask_of({square, top_left}), CudnnMask::kCausalTopLeft);
  EXPECT_EQ(mask_of({top_left, square}), CudnnMask::kCausalTopLeft);
  EXPECT_EQ(mask_of({piece_of(0, 3, 0, 4, MaskRule::kFull)}), CudnnMask::kFull);
  EXPECT_EQ(problem_of_pieces(std::vector<Piece>{square, shard}, 8, 2, 128).sequences[1],
            (CudnnSequence{10, 5, 10, 20}));
  EXPECT_THAT(
      [&] {
        mask_of({square, shard, top_left});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("piece 2 has another mask")));
  EXPECT_THAT(
      [&] {
        mask_of({square, piece_of(10, 5, 10, 20, MaskRule::kFull)});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("piece 1 has another mask")));
  EXPECT_THAT([&] { mask_of(block_diffusion(64, 16, false)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("piece 0 is neither full nor causal")));
  Piece shifted = square;
  shifted.q_token = 3;
  EXPECT_THAT(
      [&] {
        mask_of({square, shifted});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("piece 1 is neither full nor causal")));
}

}  // namespace
}  // namespace longhaul
