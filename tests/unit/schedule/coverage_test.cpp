// Coverage of the mask, and pieces that leave it, repeat it or miss it.
#include "sim/schedule/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/schedule/small_schedule.h"

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Piece make_piece(std::int64_t q_row, std::int64_t q_count, std::int64_t q_token, std::int64_t k_row,
                 std::int64_t k_count, std::int64_t k_token, MaskRule rule, std::int32_t block = 0) {
  Piece piece;
  piece.q_row = q_row;
  piece.q_count = q_count;
  piece.q_token = q_token;
  piece.k_row = k_row;
  piece.k_count = k_count;
  piece.k_token = k_token;
  piece.rule = rule;
  piece.block = block;
  return piece;
}

// Rank 0 has queries 0-3, rank 1 queries 4-7, both all keys.
struct Causal {
  SmallSchedule small;
  std::vector<Piece> pieces[2] = {
      {make_piece(0, 4, 0, 0, 4, 0, MaskRule::kCausal)},
      {make_piece(0, 4, 4, 0, 4, 0, MaskRule::kFull), make_piece(0, 4, 4, 4, 4, 4, MaskRule::kCausal)}};
  GroupRole head_role = -1;

  std::vector<std::string> violations(const CoverageOptions& options = {}) {
    if (small.schedule.tensors.empty()) {
      small.tensor("q", 0, 4);
      small.tensor("kv", 1, 8);
    }
    for (int rank = 0; rank < 2; ++rank) {
      Op op;
      op.kind = OpKind::kAttention;
      op.label = "attention";
      op.q = small.view(0, Access::kRead);
      op.key_values = {{small.view(1, Access::kRead), small.view(1, Access::kRead), {}, {}, -1}};
      op.pieces = 0;
      op.head_role = head_role;
      op.q_heads = small.schedule.model.q_heads / (head_role >= 0 ? 2 : 1);
      op.kv_heads = 1;
      op.head_dim = 2;
      small.schedule.segments[static_cast<std::size_t>(rank)].ops = {op};
      small.schedule.shapes[static_cast<std::size_t>(rank)].pieces = {make_piece_list(pieces[rank])};
    }
    return check_coverage(small.schedule, options);
  }
};

constexpr const char* kPlace = "rank 1 `attention` (forward, layer 0, chunk 0)";

TEST(Coverage, AcceptsTheMask) {
  EXPECT_THAT(Causal().violations(), IsEmpty());
  EXPECT_THAT(Causal().violations({.brute_force_pairs = 0}), IsEmpty());
}

TEST(Coverage, NamesTheFirstMissingPair) {
  Causal missing;
  missing.pieces[1][0].q_count = 3;  // query 7 no longer sees keys 0-3
  EXPECT_THAT(
      missing.violations(),
      ElementsAre("layer 0, document 0: 4 pairs are covered by no piece, the first: clean query token 7, clean key "
                  "token 0"));
  EXPECT_THAT(missing.violations({.brute_force_pairs = 0}),
              ElementsAre("layer 0, document 0: the pieces hold 32 pairs, the mask 36"));
}

TEST(Coverage, NamesAPairThatIsCoveredTwice) {
  Causal doubled;
  doubled.pieces[1].push_back(make_piece(2, 1, 6, 1, 2, 1, MaskRule::kFull));
  EXPECT_THAT(doubled.violations(), ElementsAre(std::string("layer 0, document 0: ") + kPlace +
                                                " covers clean query token 6 with clean key token 1 a second time"));
  EXPECT_THAT(doubled.violations({.brute_force_pairs = 0}),
              ElementsAre("layer 0, document 0: the pieces hold 38 pairs, the mask 36"));
}

TEST(Coverage, NamesAPairThatTheMaskHides) {
  Causal loose;
  loose.pieces[1][1] = make_piece(3, 1, 7, 4, 4, 4, MaskRule::kFull);
  loose.pieces[1].push_back(make_piece(0, 3, 4, 4, 4, 4, MaskRule::kFull));
  EXPECT_THAT(loose.violations(),
              ElementsAre("layer 0, document 0: clean query token 4 sees clean key token 5, which the mask hides",
                          "layer 0, document 0: clean query token 5 sees clean key token 6, which the mask hides",
                          "layer 0, document 0: clean query token 6 sees clean key token 7, which the mask hides"));
}

TEST(Coverage, PiecesHoldWhatTheyClaim) {
  Causal query;
  query.pieces[1][1].q_token = 5;
  EXPECT_THAT(
      query.violations(),
      ::testing::Contains(HasSubstr(std::string(kPlace) + ": a piece of query rows 0 + 4 and key rows 4 + 4 of "
                                                          "operand 0 claims query tokens that its rows do not hold")));
  Causal key;
  key.pieces[1][1].k_row = 3;
  EXPECT_THAT(key.violations(), ::testing::Contains(HasSubstr("claims key tokens that its rows do not hold")));
  Causal beyond;
  beyond.pieces[1][0].q_count = 5;
  EXPECT_THAT(beyond.violations(), ::testing::Contains(HasSubstr("claims query tokens that its rows do not hold")));
  Causal operand;
  operand.pieces[1][0].operand = 1;
  EXPECT_THAT(operand.violations(), ::testing::Contains(HasSubstr("names an operand that the op lacks")));
}

TEST(Coverage, PaddingAndOtherDocumentsAreNotSeen) {
  Causal padded;
  padded.small.schedule.shapes[1].row_maps[1] =
      make_row_map({{0, TokenView::kClean, 0, 7}, {-1, TokenView::kClean, 0, 1}});
  EXPECT_THAT(padded.violations(), ::testing::Contains(HasSubstr("claims key tokens that its rows do not hold")));

  Causal other;
  auto batch = std::make_shared<Batch>();
  batch->documents = {4, 4};
  batch->sequences = {{{0, 1}, 8}};
  other.small.schedule.batch = batch;
  other.small.schedule.shapes[0].row_maps[0] = make_row_map({{0, TokenView::kClean, 0, 4}});
  other.small.schedule.shapes[1].row_maps[0] = make_row_map({{1, TokenView::kClean, 0, 4}});
  for (ShapeSet& shape : other.small.schedule.shapes) {
    shape.row_maps[1] = make_row_map({{0, TokenView::kClean, 0, 4}, {1, TokenView::kClean, 0, 4}});
  }
  other.pieces[1] = {make_piece(0, 4, 0, 0, 4, 0, MaskRule::kFull), make_piece(0, 4, 0, 4, 4, 0, MaskRule::kCausal)};
  EXPECT_THAT(other.violations(), ElementsAre(HasSubstr("pairs two documents")));
}

// Each share of the heads covers the mask by itself.
TEST(Coverage, EveryHeadShareCoversTheMask) {
  Causal shares;
  shares.head_role = 0;
  for (ShapeSet& shape : shares.small.schedule.shapes) shape.row_maps[0] = shape.row_maps[1];
  shares.pieces[0] = shares.pieces[1] = {make_piece(0, 8, 0, 0, 8, 0, MaskRule::kCausal)};
  EXPECT_THAT(shares.violations(), IsEmpty());
  shares.pieces[1][0].q_count = 7;
  EXPECT_THAT(shares.violations(),
              ElementsAre(HasSubstr("layer 0, document 0, head share 1 of 2: 8 pairs are covered by no "
                                    "piece, the first: clean query token 7, clean key token 0")));
}

// Block diffusion, block 2, document of 8 (csbp.md 2.1): noisy rows see their own noisy block and earlier clean blocks,
// clean rows clean blocks up to their own. Both ranks' work is put on rank 0, with strided tokens on one side: blocks'
// first tokens (run 1, stride 2) and second tokens.
TEST(Coverage, BlockDiffusionWithStridedRows) {
  Causal diffusion;
  auto batch = std::make_shared<Batch>(*diffusion.small.schedule.batch);
  batch->objective = {ObjectiveKind::kBlockDiffusion, 2};
  diffusion.small.schedule.batch = batch;
  const auto strided = [](TokenView view, std::int64_t first) {
    RowRun run;
    run.document = 0;
    run.view = view;
    run.first = first;
    run.count = 4;
    run.run = 1;
    run.stride = 2;
    return run;
  };
  for (ShapeSet& shape : diffusion.small.schedule.shapes) {
    shape.row_maps[0] = make_row_map({strided(TokenView::kClean, 0), strided(TokenView::kNoisy, 0),
                                      strided(TokenView::kClean, 1), strided(TokenView::kNoisy, 1)});
    shape.row_maps[1] = make_row_map({{0, TokenView::kNoisy, 0, 8}, {0, TokenView::kClean, 0, 8}});
  }
  diffusion.pieces[0].clear();
  diffusion.pieces[1].clear();
  for (std::int64_t offset = 0; offset < 2; ++offset) {
    const auto add = [&](std::int64_t q_row, std::int64_t k_row, MaskRule rule) {
      Piece piece = make_piece(q_row, 4, offset, k_row, 8, 0, rule, 2);
      piece.q_run = 1;
      piece.q_stride = 2;
      diffusion.pieces[0].push_back(piece);
    };
    add(8 * offset, 8, MaskRule::kBlockCausal);
    add(8 * offset + 4, 8, MaskRule::kBlockCausalStrict);
    add(8 * offset + 4, 0, MaskRule::kBlockDiagonal);
  }
  EXPECT_THAT(diffusion.violations(), IsEmpty());
  diffusion.pieces[0].back().rule = MaskRule::kBlockCausal;
  EXPECT_THAT(diffusion.violations().front(),
              HasSubstr("noisy query token 3 sees noisy key token 0, which the mask hides"));
}

}  // namespace
}  // namespace longhaul
