// Which keys a query of a piece sees, for host and device: always one run of key rows, since tokens grow with the row.
//
// A PieceRule is a sim/schedule Piece in 32-bit numbers. Rows and tokens are below kMaxAttentionRows, so that no sum of
// a token and a block overflows. Tests hold it to Piece::allows, pair by pair.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LH_HOST_DEVICE __host__ __device__
#else
#define LH_HOST_DEVICE
#endif

namespace longhaul {

inline constexpr std::int64_t kMaxAttentionRows = std::int64_t{1} << 30;

// The rules of sim/schedule/piece.h, in its order.
enum class KeyRule : std::int32_t { kFull, kCausal, kBlockDiagonal, kBlockCausal, kBlockCausalStrict };

struct PieceRule {
  std::int32_t q_row = 0, q_count = 0, q_token = 0, q_run = 0, q_stride = 0;  // run 0: consecutive tokens
  std::int32_t k_row = 0, k_count = 0, k_token = 0, k_run = 0, k_stride = 0;  // rows of q and k are absolute
  std::int32_t block = 0;
  KeyRule rule = KeyRule::kFull;
};

// Key rows begin .. end-1, counted from the piece's first key row; none if end <= begin.
struct KeySpan {
  std::int32_t begin = 0, end = 0;
};

// Keys of the piece (the first ones) that hold a token below `limit`.
LH_HOST_DEVICE inline std::int32_t keys_below(const PieceRule& piece, std::int32_t limit) {
  const std::int32_t distance = limit - piece.k_token;
  if (distance <= 0) return 0;
  std::int32_t keys = distance;
  if (piece.k_run != 0) {
    const std::int32_t rest = distance % piece.k_stride;
    keys = distance / piece.k_stride * piece.k_run + (rest < piece.k_run ? rest : piece.k_run);
  }
  return keys < piece.k_count ? keys : piece.k_count;
}

// What query `query` of the piece (0 is its first) sees. Both ends never fall as `query` grows.
LH_HOST_DEVICE inline KeySpan visible_keys(const PieceRule& piece, std::int32_t query) {
  if (piece.rule == KeyRule::kFull) return {0, piece.k_count};
  const std::int32_t token =
      piece.q_token + (piece.q_run == 0 ? query : query / piece.q_run * piece.q_stride + query % piece.q_run);
  if (piece.rule == KeyRule::kCausal) return {0, keys_below(piece, token + 1)};
  const std::int32_t block_begin = token / piece.block * piece.block;
  const std::int32_t before = keys_below(piece, block_begin);
  if (piece.rule == KeyRule::kBlockCausalStrict) return {0, before};
  const std::int32_t through = keys_below(piece, block_begin + piece.block);
  return {piece.rule == KeyRule::kBlockDiagonal ? before : 0, through};
}

// Queries begin .. end-1 of the piece, counted from its first: those that see key `key` of it.
struct QuerySpan {
  std::int32_t begin = 0, end = 0;
};

// The other way round: both ends of visible_keys rise with the query, so both are found by halving.
LH_HOST_DEVICE inline QuerySpan seeing_queries(const PieceRule& piece, std::int32_t key) {
  QuerySpan span;
  std::int32_t high = piece.q_count;
  while (span.begin < high) {  // the first query whose keys reach past `key`
    const std::int32_t middle = span.begin + (high - span.begin) / 2;
    if (visible_keys(piece, middle).end > key) {
      high = middle;
    } else {
      span.begin = middle + 1;
    }
  }
  span.end = span.begin;
  high = piece.q_count;
  while (span.end < high) {  // the first query, from there, whose keys begin after it
    const std::int32_t middle = span.end + (high - span.end) / 2;
    if (visible_keys(piece, middle).begin > key) {
      high = middle;
    } else {
      span.end = middle + 1;
    }
  }
  return span;
}

}  // namespace longhaul
