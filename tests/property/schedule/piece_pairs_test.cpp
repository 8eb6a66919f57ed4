// Pair counts of pieces in closed form against counting every (query, key), and key ranges against the rule.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/schedule/piece.h"

namespace longhaul {
namespace {

std::int64_t counted_pairs(const Piece& piece) {
  std::int64_t pairs = 0;
  for (std::int64_t q = 0; q < piece.q_count; ++q) {
    for (std::int64_t k = 0; k < piece.k_count; ++k) {
      pairs += piece.allows(piece.query_token(q), piece.key_token(k)) ? 1 : 0;
    }
  }
  return pairs;
}

// Runs of `run` tokens at one offset of every block, or consecutive tokens.
void draw_rows(std::int32_t block, bool strided, std::int64_t& token, std::int64_t& count, std::int32_t& run,
               std::int32_t& stride) {
  count = *rc::gen::inRange<std::int64_t>(0, 60);
  token = *rc::gen::inRange<std::int64_t>(0, 80);
  if (!strided) return;
  run = *rc::gen::inRange<std::int32_t>(1, block + 1);
  stride = block;
  token = token / block * block + *rc::gen::inRange<std::int32_t>(0, block - run + 1);
}

RC_GTEST_PROP(PiecePairs, EqualCounting, ()) {
  Piece piece;
  piece.block = *rc::gen::inRange<std::int32_t>(1, 9);
  piece.rule = *rc::gen::element(MaskRule::kFull, MaskRule::kCausal, MaskRule::kBlockDiagonal, MaskRule::kBlockCausal,
                                 MaskRule::kBlockCausalStrict);
  const bool may_stride = piece.rule != MaskRule::kCausal;
  draw_rows(piece.block, may_stride && *rc::gen::arbitrary<bool>(), piece.q_token, piece.q_count, piece.q_run,
            piece.q_stride);
  draw_rows(piece.block, may_stride && *rc::gen::arbitrary<bool>(), piece.k_token, piece.k_count, piece.k_run,
            piece.k_stride);
  const std::int64_t expected = counted_pairs(piece);
  RC_ASSERT(make_piece_list({piece})->pairs == expected);
  RC_CLASSIFY(expected == 0, "no pairs");
}

RC_GTEST_PROP(PiecePairs, KeysBelowALimitAreTheFirstOnes, ()) {
  Piece piece;
  piece.block = *rc::gen::inRange<std::int32_t>(1, 9);
  draw_rows(piece.block, *rc::gen::arbitrary<bool>(), piece.k_token, piece.k_count, piece.k_run, piece.k_stride);
  const std::int64_t limit = *rc::gen::inRange<std::int64_t>(0, 400);
  std::int64_t below = 0;
  for (std::int64_t k = 0; k < piece.k_count; ++k) below += piece.key_token(k) < limit ? 1 : 0;
  RC_ASSERT(piece.keys_below(limit) == below);
}

}  // namespace
}  // namespace longhaul
