// Attention pieces: rectangles of (query rows x key rows) with a rule on token coordinates, and their pair counts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/schedule/tensor.h"

namespace longhaul {

enum class MaskRule : std::uint8_t {
  kFull,              // every pair
  kCausal,            // key token <= query token
  kBlockDiagonal,     // same block of b tokens
  kBlockCausal,       // block of key <= block of query
  kBlockCausalStrict  // block of key < block of query
};

// Query rows q_row .. q_row+q_count-1 hold tokens of one document from q_token on; key rows of `operand` likewise. Rows
// are indices into the q view and into the operand's key view (after their row lists). Tokens are consecutive, or, with
// a stride, in runs: row i holds token q_token + (i / q_run) q_stride + i % q_run (token-offset CP owns part of each
// block).
struct Piece {
  std::int64_t q_row = 0, q_count = 0, q_token = 0;
  std::int64_t k_row = 0, k_count = 0, k_token = 0;
  std::int32_t q_run = 0, q_stride = 0, k_run = 0, k_stride = 0;  // run 0: consecutive
  std::int32_t block = 0;                                         // b of the block rules
  std::int64_t pairs = 0;                                         // unmasked pairs; filled in by make_piece_list
  std::int16_t operand = 0;
  MaskRule rule = MaskRule::kFull;

  std::int64_t query_token(std::int64_t row) const {
    return q_run == 0 ? q_token + row : q_token + row / q_run * q_stride + row % q_run;
  }
  std::int64_t key_token(std::int64_t row) const {
    return k_run == 0 ? k_token + row : k_token + row / k_run * k_stride + row % k_run;
  }
  // Key rows (the first ones) that hold a token below `limit`.
  std::int64_t keys_below(std::int64_t limit) const;
  bool allows(std::int64_t query_token, std::int64_t key_token) const;
};

// Unmasked pairs of the piece, in closed form.
std::int64_t piece_pairs(const Piece& piece);

struct PieceList {
  std::vector<Piece> pieces;
  std::int64_t pairs = 0;  // sum
};
using PieceListPtr = std::shared_ptr<const PieceList>;
// Drops pieces without pairs.
PieceListPtr make_piece_list(std::vector<Piece> pieces);

}  // namespace longhaul
