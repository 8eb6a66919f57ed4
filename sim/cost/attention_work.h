// The size of one attention launch, summed over the pieces of its varlen call.
//
// A piece is q_rows consecutive queries against k_rows consecutive keys of one sequence, with `pairs` unmasked
// (query, key) pairs. Kernels work on tiles of kAttentionTile x kAttentionTile: a query tile visits every key tile in
// which it has an unmasked pair. The number of visited pairs of a piece is estimated from (q, k, pairs) alone, so that
// any mask can be charged: a query tile visits the mean key count of its rows, half a tile for the diagonal and half a
// tile for rounding, but never more than all key tiles. That is exact for full pieces whose k_rows is a multiple of
// the tile; for causal ones it is high by half a tile where q_rows and k_rows are multiples of the tile, and right on
// average where they are not.
//
// Measured on cuDNN (validate/data/h200/cudnn_varlen.csv, 2026-11-29): the backward of a ragged call does not skip the
// masked tiles of a causal piece. Charged at q x k in whole tiles, all 27 backward rows run at one rate within 8 %;
// charged at visited pairs, packed square documents seem to run at half the rate. A mask sparser than causal
// (block-diagonal) is charged at most twice its visited pairs, the factor of a causal square.
//
// Head counts multiply all figures alike, so they are not in here. Accumulation is one pass, a few additions a piece,
// without allocation. Ignored: order of pieces in the launch, L2 reuse between heads that share a KV head.
#pragma once

#include <cstdint>
#include <span>

namespace longhaul {

inline constexpr std::int64_t kAttentionTile = 128;  // rows of a query tile: flashcp.md 6.2, csbp.md 8

// One piece of one varlen call. 1 <= q_rows, 1 <= k_rows, 1 <= pairs <= q_rows * k_rows.
struct AttentionPieceSize {
  std::int64_t q_rows = 0;
  std::int64_t k_rows = 0;
  std::int64_t pairs = 0;
};

struct AttentionWork {
  std::int64_t pieces = 0;
  std::int64_t q_rows = 0;
  std::int64_t k_rows = 0;
  std::int64_t q_tiles = 0;          // query tiles: the work items of a forward launch
  std::int64_t k_tiles = 0;          // key tiles: the work items of a backward launch
  double pairs = 0;                  // unmasked pairs; exact below 2^53
  double all_pairs = 0;              // q_rows x k_rows of each piece: `pairs` where nothing is masked
  double forward_pairs = 0;          // pairs visited by whole query tiles (forward)
  double backward_pairs = 0;         // pairs visited by whole key tiles (backward of a dense call, which skips)
  double unskipped_pairs = 0;        // the same where masked tiles are not skipped (backward of a ragged call)
  double longest_forward_tile = 0;   // most pairs that one query tile visits: the length of the launch's tail
  double longest_backward_tile = 0;  // the same for one key tile

  void add(const AttentionPieceSize& piece);
  void merge(const AttentionWork& other);
  // One square or unmasked piece runs as a dense call; anything else is a ragged (varlen) call.
  bool dense() const;
};

AttentionWork attention_work(std::span<const AttentionPieceSize> pieces);

}  // namespace longhaul
