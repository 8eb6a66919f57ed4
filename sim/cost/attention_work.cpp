#include "sim/cost/attention_work.h"

#include <algorithm>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr double kTile = static_cast<double>(kAttentionTile);

// Rows of the other axis that one tile visits: the mean over its own rows, half a tile for the diagonal and half a tile
// for rounding, at most the whole axis in tiles.
double visited(double mean, double other_tiles) { return std::min(mean + kTile, other_tiles * kTile); }

}  // namespace

void AttentionWork::add(const AttentionPieceSize& piece) {
  LH_ASSERT(piece.q_rows >= 1 && piece.k_rows >= 1 && piece.pairs >= 1, "an attention piece is not empty");
  const std::int64_t piece_q_tiles = (piece.q_rows + kAttentionTile - 1) / kAttentionTile;
  const std::int64_t piece_k_tiles = (piece.k_rows + kAttentionTile - 1) / kAttentionTile;
  const auto q_tiles_d = static_cast<double>(piece_q_tiles);
  const auto k_tiles_d = static_cast<double>(piece_k_tiles);
  const auto pairs_d = static_cast<double>(piece.pairs);
  const auto q_rows_d = static_cast<double>(piece.q_rows);
  const auto k_rows_d = static_cast<double>(piece.k_rows);
  const double density = pairs_d / (q_rows_d * k_rows_d);  // one division a piece: this loop is hot
  const double forward_tile = kTile * visited(density * k_rows_d, k_tiles_d);
  const double backward_tile = kTile * visited(density * q_rows_d, q_tiles_d);

  pieces += 1;
  q_rows += piece.q_rows;
  k_rows += piece.k_rows;
  q_tiles += piece_q_tiles;
  k_tiles += piece_k_tiles;
  pairs += pairs_d;
  all_pairs += q_rows_d * k_rows_d;
  forward_pairs += q_tiles_d * forward_tile;
  backward_pairs += k_tiles_d * backward_tile;
  unskipped_pairs += std::min(q_tiles_d * k_tiles_d * kTile * kTile, 2 * k_tiles_d * backward_tile);
  longest_forward_tile = std::max(longest_forward_tile, kTile * kTile * k_tiles_d);
  longest_backward_tile = std::max(longest_backward_tile, kTile * kTile * q_tiles_d);
}

void AttentionWork::merge(const AttentionWork& other) {
  pieces += other.pieces;
  q_rows += other.q_rows;
  k_rows += other.k_rows;
  q_tiles += other.q_tiles;
  k_tiles += other.k_tiles;
  pairs += other.pairs;
  all_pairs += other.all_pairs;
  forward_pairs += other.forward_pairs;
  backward_pairs += other.backward_pairs;
  unskipped_pairs += other.unskipped_pairs;
  longest_forward_tile = std::max(longest_forward_tile, other.longest_forward_tile);
  longest_backward_tile = std::max(longest_backward_tile, other.longest_backward_tile);
}

bool AttentionWork::dense() const {
  if (pieces != 1) return false;
  return q_rows == k_rows || pairs == static_cast<double>(q_rows) * static_cast<double>(k_rows);
}

AttentionWork attention_work(std::span<const AttentionPieceSize> pieces) {
  AttentionWork work;
  for (const AttentionPieceSize& piece : pieces) work.add(piece);
  return work;
}

}  // namespace longhaul
