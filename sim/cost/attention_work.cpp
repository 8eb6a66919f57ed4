#include "sim/cost/attention_work.h"

#include <algorithm>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr double kTile = static_cast<double>(kAttentionTile);

std::int64_t tiles(std::int64_t rows) { return ceil_div(rows, kAttentionTile); }
std::int64_t blocks(std::int64_t rows) { return ceil_div(rows, kAttentionBlock); }

// Tiles of the other axis that one tile visits: the mean over its own rows, half a tile for the edge and half a tile
// for rounding, at most all.
double visited(double mean_rows, std::int64_t other_tiles) {
  return std::min(mean_rows / kTile + 1, as_double(other_tiles));
}

// The same in blocks: half a tile for the edge, half a block for rounding.
double visited_blocks(double mean_rows, std::int64_t other_blocks) {
  return std::min(mean_rows / static_cast<double>(kAttentionBlock) + 1.5, as_double(other_blocks));
}

// Between the mean and either end of a line with this mean that stays within 0 .. other_tiles.
double ramp(double density, double mean, std::int64_t other_tiles) {
  const double most = as_double(other_tiles);
  return std::min(std::min(density, 1 - density) * most, std::min(mean, most - mean));
}

// From -1 to 1, at the middle of each of `count` parts.
double along(std::int64_t i, std::int64_t count) { return (2 * as_double(i) + 1) / as_double(count) - 1; }

}  // namespace

PieceMask mask_of(const AttentionPieceSize& piece) {
  const std::int64_t q = piece.q_rows;
  const std::int64_t k = piece.k_rows;
  if (piece.pairs == q * k) return PieceMask::kFull;
  if (k < q || piece.pairs != q * (k - q) + q * (q + 1) / 2) return PieceMask::kOther;
  return q == k ? PieceMask::kSquareCausal : PieceMask::kOffsetCausal;
}

PieceTiles tiles_of(const AttentionPieceSize& piece) {
  LH_ASSERT(piece.q_rows >= 1 && piece.k_rows >= 1 && piece.pairs >= 1, "an attention piece is not empty");
  PieceTiles out;
  out.q_tiles = tiles(piece.q_rows);
  out.k_tiles = tiles(piece.k_rows);
  out.mask = mask_of(piece);
  if (out.mask == PieceMask::kOffsetCausal) out.offset = tiles(piece.k_rows - piece.q_rows);
  if (out.mask == PieceMask::kOther) {
    out.keys_a_query_tile = visited(as_double(piece.pairs) / as_double(piece.q_rows), out.k_tiles);
    out.queries_a_key_tile = visited(as_double(piece.pairs) / as_double(piece.k_rows), out.q_tiles);
    const double density = as_double(piece.pairs) / (as_double(piece.q_rows) * as_double(piece.k_rows));
    if (density >= kLeastRamp) {
      out.forward_ramp = ramp(density, out.keys_a_query_tile, out.k_tiles);
      out.backward_ramp = ramp(density, out.queries_a_key_tile, out.q_tiles);
    }
  }
  return out;
}

double PieceTiles::forward_cost(std::int64_t i) const {
  switch (mask) {
    case PieceMask::kFull:
      return as_double(k_tiles);
    case PieceMask::kSquareCausal:
    case PieceMask::kOffsetCausal:
      return as_double(std::min(k_tiles, offset + i + 1));
    case PieceMask::kOther:
      return keys_a_query_tile + forward_ramp * along(i, q_tiles);
  }
  LH_ASSERT(false, "unknown mask");
}

double PieceTiles::backward_cost(std::int64_t i) const {
  switch (mask) {
    case PieceMask::kFull:
      return as_double(q_tiles);
    case PieceMask::kSquareCausal:
    case PieceMask::kOffsetCausal:
      return as_double(std::min(q_tiles, std::max<std::int64_t>(1, q_tiles - (i - offset))));
    case PieceMask::kOther:
      return queries_a_key_tile - backward_ramp * along(i, k_tiles);
  }
  LH_ASSERT(false, "unknown mask");
}

// Query tile i visits offset + i + 1 key tiles, but the last one or two end at the last key.
double PieceTiles::forward_tiles() const {
  if (mask == PieceMask::kFull) return as_double(q_tiles) * as_double(k_tiles);
  if (mask == PieceMask::kOther) return as_double(q_tiles) * keys_a_query_tile;
  const std::int64_t ramp = std::clamp<std::int64_t>(k_tiles - offset, 0, q_tiles);  // tiles below the last key tile
  return as_double(ramp * offset + ramp * (ramp + 1) / 2 + (q_tiles - ramp) * k_tiles);
}

// Key tile i is seen by all query tiles up to the diagonal and by one less a tile behind it, at least by one.
double PieceTiles::backward_tiles() const {
  if (mask == PieceMask::kFull) return as_double(q_tiles) * as_double(k_tiles);
  if (mask == PieceMask::kOther) return as_double(k_tiles) * queries_a_key_tile;
  const std::int64_t flat = std::min(k_tiles, offset + 1);
  const std::int64_t ramp = std::min(k_tiles - flat, q_tiles - 1);
  const std::int64_t last = k_tiles - flat - ramp;
  return as_double(flat * q_tiles + ramp * q_tiles - ramp * (ramp + 1) / 2 + last);
}

// Query tile i sees rows up to 128 (i + 1) + offset, so 2 (i + 1) blocks and those before the diagonal; the last one
// all.
double forward_blocks_of(const AttentionPieceSize& piece) {
  const std::int64_t count = tiles(piece.q_rows), all = blocks(piece.k_rows);
  switch (mask_of(piece)) {
    case PieceMask::kFull:
      return as_double(count * all);
    case PieceMask::kSquareCausal:
    case PieceMask::kOffsetCausal:
      return as_double((count - 1) * (count + blocks(piece.k_rows - piece.q_rows)) + all);
    case PieceMask::kOther:
      return as_double(count) * visited_blocks(as_double(piece.pairs) / as_double(piece.q_rows), all);
  }
  LH_ASSERT(false, "unknown mask");
}

// Key tile j is seen from query row 128 j - offset on: all blocks but the 2 j before that, rounded down.
double backward_blocks_of(const AttentionPieceSize& piece) {
  const std::int64_t count = tiles(piece.k_rows), all = blocks(piece.q_rows);
  switch (mask_of(piece)) {
    case PieceMask::kFull:
      return as_double(count * all);
    case PieceMask::kSquareCausal:
    case PieceMask::kOffsetCausal: {
      const std::int64_t before = blocks(piece.k_rows - piece.q_rows);
      const std::int64_t whole = std::min(count, before / 2 + 1);  // tiles that all blocks see
      const std::int64_t rest = count - whole;
      const std::int64_t skipped = (whole + count - 1) * rest - before * rest;  // sum of 2 j - before
      return as_double(count * all - skipped);
    }
    case PieceMask::kOther:
      return as_double(count) * visited_blocks(as_double(piece.pairs) / as_double(piece.k_rows), all);
  }
  LH_ASSERT(false, "unknown mask");
}

// Rows of a masked piece see their mean of keys and half a tile for rounding, and half the rows of a tile for its edge.
void AttentionWork::pack(const AttentionPieceSize& piece, const PieceTiles& in_tiles) {
  const double all = as_double(in_tiles.k_tiles) * kTile;
  const bool masked = in_tiles.mask != PieceMask::kFull;
  const double mean = as_double(piece.pairs) / as_double(piece.q_rows) + kTile / 2;
  std::int64_t rows = kAttentionTile;
  for (PackedTiles& one : packed) {
    rows /= 2;
    const std::int64_t count = ceil_div(piece.q_rows, rows);
    one.tiles += count;
    one.pairs += as_double(count * rows) * (masked ? std::min(mean + as_double(rows) / 2, all) : all);
  }
}

void AttentionWork::keep(const PieceTiles& piece, std::int64_t place) {
  kept_[static_cast<std::size_t>(place) % kKeptPieces] = piece;
}

void AttentionWork::add(const AttentionPieceSize& piece) {
  const PieceTiles in_tiles = tiles_of(piece);
  if (pieces == 0) first = piece;
  equal = equal && piece.q_rows == first.q_rows && piece.k_rows == first.k_rows && piece.pairs == first.pairs;
  keep(in_tiles, pieces);
  pack(piece, in_tiles);
  pieces += 1;
  q_rows += piece.q_rows;
  k_rows += piece.k_rows;
  q_tiles += in_tiles.q_tiles;
  k_tiles += in_tiles.k_tiles;
  most_q_tiles = std::max(most_q_tiles, in_tiles.q_tiles);
  most_k_tiles = std::max(most_k_tiles, in_tiles.k_tiles);
  pairs += as_double(piece.pairs);
  all_pairs += as_double(piece.q_rows) * as_double(piece.k_rows);
  const double density = as_double(piece.pairs) / (as_double(piece.q_rows) * as_double(piece.k_rows));
  forward_pairs +=
      as_double(in_tiles.q_tiles) * kTile * kTile * visited(density * as_double(piece.k_rows), in_tiles.k_tiles);
  backward_pairs +=
      as_double(in_tiles.k_tiles) * kTile * kTile * visited(density * as_double(piece.q_rows), in_tiles.q_tiles);
  forward_tiles += in_tiles.forward_tiles();
  backward_tiles += in_tiles.backward_tiles();
  forward_blocks += forward_blocks_of(piece);
  backward_blocks += backward_blocks_of(piece);
  unskipped_tiles += as_double(in_tiles.q_tiles) * as_double(in_tiles.k_tiles);
  longest_forward_tile = std::max(longest_forward_tile, in_tiles.forward_cost(in_tiles.q_tiles - 1));
  longest_backward_tile = std::max(longest_backward_tile, in_tiles.backward_cost(0));
  masks[static_cast<std::size_t>(in_tiles.mask)] += 1;
  if (piece.q_rows == 1 && in_tiles.mask == PieceMask::kFull) {
    single_queries += 1;
    if (piece.k_rows == 1) single_pairs += 1;
  }
}

void AttentionWork::merge(const AttentionWork& other) {
  if (other.pieces == 0) return;
  if (pieces == 0) {
    *this = other;
    return;
  }
  const std::size_t count = other.kept_count();
  for (std::size_t i = 0; i < count; ++i) {
    keep(other.kept(i), pieces + other.pieces - static_cast<std::int64_t>(count - i));
  }
  equal = equal && other.equal && other.first.q_rows == first.q_rows && other.first.k_rows == first.k_rows &&
          other.first.pairs == first.pairs;
  pieces += other.pieces;
  q_rows += other.q_rows;
  k_rows += other.k_rows;
  q_tiles += other.q_tiles;
  k_tiles += other.k_tiles;
  most_q_tiles = std::max(most_q_tiles, other.most_q_tiles);
  most_k_tiles = std::max(most_k_tiles, other.most_k_tiles);
  pairs += other.pairs;
  all_pairs += other.all_pairs;
  forward_pairs += other.forward_pairs;
  backward_pairs += other.backward_pairs;
  forward_tiles += other.forward_tiles;
  backward_tiles += other.backward_tiles;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    packed[i].tiles += other.packed[i].tiles;
    packed[i].pairs += other.packed[i].pairs;
  }
  forward_blocks += other.forward_blocks;
  backward_blocks += other.backward_blocks;
  unskipped_tiles += other.unskipped_tiles;
  longest_forward_tile = std::max(longest_forward_tile, other.longest_forward_tile);
  longest_backward_tile = std::max(longest_backward_tile, other.longest_backward_tile);
  for (std::size_t i = 0; i < masks.size(); ++i) masks[i] += other.masks[i];
  single_queries += other.single_queries;
  single_pairs += other.single_pairs;
  shared_keys = shared_keys || other.shared_keys;
}

PieceMask AttentionWork::mask() const {
  if (count(PieceMask::kFull) == pieces) return PieceMask::kFull;
  const std::int64_t squares = count(PieceMask::kSquareCausal), offsets = count(PieceMask::kOffsetCausal);
  if (squares + single_pairs == pieces) return PieceMask::kSquareCausal;
  // Of causal lists, one offset piece makes the call bottom-right, which square pieces fit too.
  return squares + offsets + single_queries == pieces ? PieceMask::kOffsetCausal : PieceMask::kOther;
}

std::size_t AttentionWork::kept_count() const {
  return pieces < static_cast<std::int64_t>(kKeptPieces) ? static_cast<std::size_t>(pieces) : kKeptPieces;
}

const PieceTiles& AttentionWork::kept(std::size_t i) const {
  const std::size_t begin = static_cast<std::size_t>(pieces) - kept_count();
  return kept_[(begin + i) % kKeptPieces];
}

AttentionWork attention_work(std::span<const AttentionPieceSize> pieces) {
  AttentionWork work;
  for (const AttentionPieceSize& piece : pieces) work.add(piece);
  return work;
}

}  // namespace longhaul
