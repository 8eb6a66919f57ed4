#include "sim/schedule/piece.h"

#include <algorithm>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Sum over i = 0..n-1 of clamp(first + i, 0, cap): keys visible to query i when the first sees `first` and each next one
// more.
std::int64_t ramp_sum(std::int64_t first, std::int64_t n, std::int64_t cap) {
  const std::int64_t begin = std::clamp<std::int64_t>(1 - first, 0, n);             // first i with a visible key
  const std::int64_t full = std::clamp<std::int64_t>(cap - first, begin, n);        // first i that sees all keys
  const std::int64_t ramp = full - begin;
  return ramp * (first + begin) + ramp * (ramp - 1) / 2 + (n - full) * cap;
}

// Keys that a query of block `block` sees.
std::int64_t block_keys(const Piece& piece, std::int64_t block) {
  const std::int64_t b = piece.block;
  if (piece.rule == MaskRule::kBlockDiagonal) return piece.keys_below((block + 1) * b) - piece.keys_below(block * b);
  return piece.keys_below((piece.rule == MaskRule::kBlockCausal ? block + 1 : block) * b);
}

// One step for each run of queries inside one block.
std::int64_t block_pairs(const Piece& piece) {
  std::int64_t pairs = 0;
  std::int64_t row = 0;
  while (row < piece.q_count) {
    const std::int64_t token = piece.query_token(row);
    const std::int64_t block = token / piece.block;
    std::int64_t rows = std::min(piece.q_count - row, (block + 1) * piece.block - token);
    if (piece.q_run > 0) rows = std::min<std::int64_t>(rows, piece.q_run - row % piece.q_run);
    pairs += rows * block_keys(piece, block);
    row += rows;
  }
  return pairs;
}

}  // namespace

std::int64_t Piece::keys_below(std::int64_t limit) const {
  const std::int64_t distance = limit - k_token;
  if (distance <= 0) return 0;
  if (k_run == 0) return std::min(distance, k_count);
  return std::min(k_count, distance / k_stride * k_run + std::min<std::int64_t>(distance % k_stride, k_run));
}

bool Piece::allows(std::int64_t query_token, std::int64_t key_token) const {
  switch (rule) {
    case MaskRule::kFull: return true;
    case MaskRule::kCausal: return key_token <= query_token;
    case MaskRule::kBlockDiagonal: return key_token / block == query_token / block;
    case MaskRule::kBlockCausal: return key_token / block <= query_token / block;
    case MaskRule::kBlockCausalStrict: return key_token / block < query_token / block;
  }
  return false;
}

std::int64_t piece_pairs(const Piece& piece) {
  switch (piece.rule) {
    case MaskRule::kFull: return piece.q_count * piece.k_count;
    case MaskRule::kCausal:
      LH_ASSERT(piece.q_run == 0 && piece.k_run == 0, "causal pieces hold consecutive tokens");
      return ramp_sum(piece.q_token - piece.k_token + 1, piece.q_count, piece.k_count);
    case MaskRule::kBlockDiagonal:
    case MaskRule::kBlockCausal:
    case MaskRule::kBlockCausalStrict: return block_pairs(piece);
  }
  return 0;
}

PieceListPtr make_piece_list(std::vector<Piece> pieces) {
  auto list = std::make_shared<PieceList>();
  list->pieces.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    LH_ASSERT(piece.q_count >= 0 && piece.k_count >= 0, "piece of {} x {}", piece.q_count, piece.k_count);
    const std::int64_t pairs = piece_pairs(piece);
    if (pairs == 0) continue;
    list->pairs += pairs;
    list->pieces.push_back(piece);
  }
  return list;
}

}  // namespace longhaul
