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

// Keys with token below `limit` among k_count from k_token.
std::int64_t keys_below(const Piece& piece, std::int64_t limit) {
  return std::clamp<std::int64_t>(limit - piece.k_token, 0, piece.k_count);
}

std::int64_t block_pairs(const Piece& piece) {
  const std::int64_t b = piece.block;
  std::int64_t pairs = 0;
  std::int64_t q = piece.q_token;
  const std::int64_t end = piece.q_token + piece.q_count;
  while (q < end) {  // one step a block of queries
    const std::int64_t block = q / b;
    const std::int64_t next = std::min(end, (block + 1) * b);
    std::int64_t keys = 0;
    if (piece.rule == MaskRule::kBlockDiagonal) {
      keys = keys_below(piece, (block + 1) * b) - keys_below(piece, block * b);
    } else if (piece.rule == MaskRule::kBlockCausal) {
      keys = keys_below(piece, (block + 1) * b);
    } else {
      keys = keys_below(piece, block * b);
    }
    pairs += (next - q) * keys;
    q = next;
  }
  return pairs;
}

}  // namespace

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
    case MaskRule::kCausal: return ramp_sum(piece.q_token - piece.k_token + 1, piece.q_count, piece.k_count);
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
