#include "sim/schedule/piece.h"

#include <algorithm>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Sum over i = 0..n-1 of clamp(first + i, 0, cap): keys visible to query i when the first sees `first` and each next
// one more.
std::int64_t ramp_sum(std::int64_t first, std::int64_t n, std::int64_t cap) {
  const std::int64_t begin = std::clamp<std::int64_t>(1 - first, 0, n);       // first i with a visible key
  const std::int64_t full = std::clamp<std::int64_t>(cap - first, begin, n);  // first i that sees all keys
  const std::int64_t ramp = full - begin;
  return ramp * (first + begin) + ramp * (ramp - 1) / 2 + (n - full) * cap;
}

// Sum over B = begin .. end-1 of clamp(intercept + B slope, 0, cap), slope >= 1.
std::int64_t clamped_sum(std::int64_t intercept, std::int64_t slope, std::int64_t cap, std::int64_t begin,
                         std::int64_t end) {
  const auto first_at_least = [&](std::int64_t value) {  // first B with intercept + B slope >= value
    const std::int64_t distance = value - intercept;
    const std::int64_t block = distance >= 0 ? (distance + slope - 1) / slope : -(-distance / slope);
    return std::clamp(block, begin, end);
  };
  const std::int64_t positive = first_at_least(1);
  const std::int64_t full = std::max(positive, first_at_least(cap));
  const std::int64_t n = full - positive;
  return n * (intercept + positive * slope) + slope * n * (n - 1) / 2 + (end - full) * cap;
}

// Sum over blocks B = begin .. end-1 of the keys that lie in blocks before B + `shift`.
std::int64_t keys_before_blocks(const Piece& piece, std::int64_t begin, std::int64_t end, std::int64_t shift) {
  const std::int64_t b = piece.block;
  if (piece.k_run == 0) return clamped_sum(shift * b - piece.k_token, b, piece.k_count, begin, end);
  return clamped_sum((shift - piece.k_token / b) * piece.k_run, piece.k_run, piece.k_count, begin, end);
}

// Pairs of one query in each of the blocks begin .. end-1.
std::int64_t pairs_of_blocks(const Piece& piece, std::int64_t begin, std::int64_t end) {
  switch (piece.rule) {
    case MaskRule::kBlockDiagonal:
      return keys_before_blocks(piece, begin, end, 1) - keys_before_blocks(piece, begin, end, 0);
    case MaskRule::kBlockCausal:
      return keys_before_blocks(piece, begin, end, 1);
    default:
      return keys_before_blocks(piece, begin, end, 0);
  }
}

// Runs of a strided piece stand in one block each, at one offset: queries of `q_run` a block; the last may be short.
// Consecutive queries: a first and a last block in part, whole ones between.
std::int64_t block_pairs(const Piece& piece) {
  const std::int64_t b = piece.block;
  LH_ASSERT(piece.q_run == 0 || (piece.q_stride == b && piece.q_token % b + piece.q_run <= b),
            "query runs of {} every {} from token {} cross blocks of {}", piece.q_run, piece.q_stride, piece.q_token,
            b);
  LH_ASSERT(piece.k_run == 0 || (piece.k_stride == b && piece.k_token % b + piece.k_run <= b),
            "key runs of {} every {} from token {} cross blocks of {}", piece.k_run, piece.k_stride, piece.k_token, b);
  const std::int64_t first = piece.q_token / b;
  if (piece.q_run > 0) {
    const std::int64_t whole = piece.q_count / piece.q_run;
    const std::int64_t rest = piece.q_count % piece.q_run;
    return piece.q_run * pairs_of_blocks(piece, first, first + whole) +
           rest * pairs_of_blocks(piece, first + whole, first + whole + 1);
  }
  const std::int64_t end = piece.q_token + piece.q_count;
  const std::int64_t last = (end - 1) / b;
  if (first == last) return piece.q_count * pairs_of_blocks(piece, first, first + 1);
  return ((first + 1) * b - piece.q_token) * pairs_of_blocks(piece, first, first + 1) +
         b * pairs_of_blocks(piece, first + 1, last) + (end - last * b) * pairs_of_blocks(piece, last, last + 1);
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
    case MaskRule::kFull:
      return true;
    case MaskRule::kCausal:
      return key_token <= query_token;
    case MaskRule::kBlockDiagonal:
      return key_token / block == query_token / block;
    case MaskRule::kBlockCausal:
      return key_token / block <= query_token / block;
    case MaskRule::kBlockCausalStrict:
      return key_token / block < query_token / block;
  }
  return false;
}

std::int64_t piece_pairs(const Piece& piece) {
  switch (piece.rule) {
    case MaskRule::kFull:
      return piece.q_count * piece.k_count;
    case MaskRule::kCausal:
      LH_ASSERT(piece.q_run == 0 && piece.k_run == 0, "causal pieces hold consecutive tokens");
      return ramp_sum(piece.q_token - piece.k_token + 1, piece.q_count, piece.k_count);
    case MaskRule::kBlockDiagonal:
    case MaskRule::kBlockCausal:
    case MaskRule::kBlockCausalStrict:
      return block_pairs(piece);
  }
  return 0;
}

PieceListPtr make_piece_list(std::vector<Piece> pieces) {
  auto list = std::make_shared<PieceList>();
  list->pieces.reserve(pieces.size());
  for (Piece& piece : pieces) {
    LH_ASSERT(piece.q_count >= 0 && piece.k_count >= 0, "piece of {} x {}", piece.q_count, piece.k_count);
    if (piece.q_count == 0 || piece.k_count == 0) continue;
    piece.pairs = piece_pairs(piece);
    if (piece.pairs == 0) continue;
    list->pairs += piece.pairs;
    list->pieces.push_back(piece);
  }
  return list;
}

}  // namespace longhaul
