// Pieces of shards that adjoin as the sequences of one variable-length call.
#include "sim/executor/launch_pieces.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

Piece piece(std::int64_t q_row, std::int64_t q_count, std::int64_t k_row, std::int64_t k_count, bool causal = false) {
  Piece out;
  out.q_row = q_row;
  out.q_count = q_count;
  out.k_row = k_row;
  out.k_count = k_count;
  out.rule = causal ? MaskRule::kCausal : MaskRule::kFull;
  return out;
}

void expect_sizes(std::vector<Piece> pieces, const std::vector<AttentionPieceSize>& expected) {
  const PieceListPtr list = make_piece_list(std::move(pieces));
  const std::vector<AttentionPieceSize> sizes = launch_pieces(*list);
  ASSERT_EQ(sizes.size(), expected.size());
  std::int64_t pairs = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i].q_rows, expected[i].q_rows) << i;
    EXPECT_EQ(sizes[i].k_rows, expected[i].k_rows) << i;
    EXPECT_EQ(sizes[i].pairs, expected[i].pairs) << i;
    pairs += sizes[i].pairs;
  }
  EXPECT_EQ(pairs, list->pairs);
}

// Front on front, back on front, back on back: 4 rows each, 10 + 16 + 10 pairs are 8 * 9 / 2. Two documents.
TEST(LaunchPieces, AZigzagRingsOwnBlockIsASquareADocument) {
  expect_sizes({piece(0, 4, 0, 4, true), piece(4, 4, 0, 4), piece(4, 4, 4, 4, true), piece(8, 2, 8, 2, true),
                piece(10, 2, 8, 2), piece(10, 2, 10, 2, true)},
               {{8, 8, 36}, {4, 4, 10}});
}

TEST(LaunchPieces, HalvesOfQueriesOrKeysAreOneSequence) {
  expect_sizes({piece(0, 4, 0, 4), piece(4, 4, 0, 4), piece(8, 2, 4, 2), piece(10, 2, 4, 2)}, {{8, 4, 32}, {4, 2, 8}});
  expect_sizes({piece(0, 4, 0, 4), piece(0, 4, 4, 4)}, {{4, 8, 32}});
}

// Clean and corrupted queries on the clean keys in blocks of 2 (csbp.md 2.2: 40 and 24 pairs of 8 rows), then corrupted
// queries on their own keys, which stay apart.
TEST(LaunchPieces, BlockRulesOnTheSameKeysAreOnePiece) {
  Piece clean = piece(0, 8, 0, 8), corrupted = piece(8, 8, 0, 8), own = piece(8, 8, 8, 8);
  clean.rule = MaskRule::kBlockCausal;
  corrupted.rule = MaskRule::kBlockCausalStrict;
  own.rule = MaskRule::kBlockDiagonal;
  for (Piece* one : {&clean, &corrupted, &own}) one->block = 2;
  expect_sizes({clean, corrupted, own}, {{16, 8, 64}, {8, 8, 16}});
}

// Keys apart, queries apart, another operand, and a causal piece before a full one.
TEST(LaunchPieces, NothingElseIsJoined) {
  expect_sizes({piece(0, 4, 0, 4), piece(4, 4, 8, 4)}, {{4, 4, 16}, {4, 4, 16}});
  expect_sizes({piece(0, 4, 0, 4), piece(5, 4, 0, 4)}, {{4, 4, 16}, {4, 4, 16}});
  Piece other = piece(4, 4, 0, 4);
  other.operand = 1;
  expect_sizes({piece(0, 4, 0, 4), other}, {{4, 4, 16}, {4, 4, 16}});
  expect_sizes({piece(0, 4, 0, 4, true), piece(0, 4, 4, 4)}, {{4, 4, 10}, {4, 4, 16}});
  expect_sizes({}, {});
}

}  // namespace
}  // namespace longhaul
