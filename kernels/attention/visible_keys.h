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

// Of `count` rows, which hold tokens first, first + 1, ... or runs of `run` tokens every `stride`: how many (the first
// ones) hold a token below `limit`.
LH_HOST_DEVICE inline std::int32_t rows_below(std::int32_t limit, std::int32_t first, std::int32_t run,
                                              std::int32_t stride, std::int32_t count) {
  const std::int32_t distance = limit - first;
  if (distance <= 0) return 0;
  std::int32_t rows = distance;
  if (run != 0) {
    const std::int32_t rest = distance % stride;
    rows = distance / stride * run + (rest < run ? rest : run);
  }
  return rows < count ? rows : count;
}
LH_HOST_DEVICE inline std::int32_t keys_below(const PieceRule& piece, std::int32_t limit) {
  return rows_below(limit, piece.k_token, piece.k_run, piece.k_stride, piece.k_count);
}
LH_HOST_DEVICE inline std::int32_t queries_below(const PieceRule& piece, std::int32_t limit) {
  return rows_below(limit, piece.q_token, piece.q_run, piece.q_stride, piece.q_count);
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

// Queries begin .. end-1 of the piece, counted from its first: those that see key `key` of it. Both ends never fall as
// `key` grows.
struct QuerySpan {
  std::int32_t begin = 0, end = 0;
};

LH_HOST_DEVICE inline QuerySpan seeing_queries(const PieceRule& piece, std::int32_t key) {
  if (piece.rule == KeyRule::kFull) return {0, piece.q_count};
  const std::int32_t token =
      piece.k_token + (piece.k_run == 0 ? key : key / piece.k_run * piece.k_stride + key % piece.k_run);
  if (piece.rule == KeyRule::kCausal) return {queries_below(piece, token), piece.q_count};
  const std::int32_t block_begin = token / piece.block * piece.block;
  const std::int32_t after = queries_below(piece, block_begin + piece.block);
  if (piece.rule == KeyRule::kBlockCausalStrict) return {after, piece.q_count};
  return {queries_below(piece, block_begin), piece.rule == KeyRule::kBlockDiagonal ? after : piece.q_count};
}

}  // namespace longhaul
