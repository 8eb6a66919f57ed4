// The size of one attention launch, summed over the pieces of its call, in tiles.
//
// A piece is q_rows consecutive queries against k_rows consecutive keys of one sequence, with `pairs` unmasked
// (query, key) pairs. Kernels work on tiles of kAttentionTile x kAttentionTile: a query tile visits every key tile in
// which it has an unmasked pair. Which mask a piece has follows from its three numbers (mask_of); the counts of causal
// and full pieces are exact, those of other masks are estimated from the mean of visible keys, half a tile for the edge
// and half a tile for rounding. Other masks with kLeastRamp of all pairs and more are taken for block rules along the
// diagonal: later queries see more keys, in a straight line that ends at all or begins at none; sparser ones for bands,
// where all queries see as many.
//
// Some kernels go through the other side in blocks of kAttentionBlock rows: a query tile visits every key block in
// which it has an unmasked pair, a key tile every query block. Counted as tiles are.
//
// Head counts multiply all figures alike, so they are not in here. Adding a piece is a few additions without
// allocation; sums over pieces are integers below 2^53. The last kKeptPieces pieces are kept as they are: a launch's
// end, where multiprocessors run out of items, is made of them (sim/cost/attention_span.h). Ignored: L2 reuse between
// heads that share a KV head.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace longhaul {

inline constexpr double kLeastRamp = 0.3;
inline constexpr double kMeasuredHeadDim = 128;      // of the measured rows; other widths scale from it
inline constexpr std::int64_t kAttentionTile = 128;  // rows of a query tile: flashcp.md 6.2, csbp.md 8
inline constexpr std::int64_t kAttentionBlock = kAttentionTile / 2;

// One piece of one varlen call. 1 <= q_rows, 1 <= k_rows, 1 <= pairs <= q_rows * k_rows.
struct AttentionPieceSize {
  std::int64_t q_rows = 0;
  std::int64_t k_rows = 0;
  std::int64_t pairs = 0;
};

enum class PieceMask : std::uint8_t {
  kFull,
  kSquareCausal,  // as many queries as keys: top-left and bottom-right are the same mask
  kOffsetCausal,  // more keys than queries, the last query sees the last key (bottom-right)
  kOther          // block rules, windows: no one call of cuDNN
};
// By the number of pairs. A single query is full.
PieceMask mask_of(const AttentionPieceSize& piece);

// One piece in tiles.
struct PieceTiles {
  std::int64_t q_tiles = 0;
  std::int64_t k_tiles = 0;
  std::int64_t offset = 0;       // causal: key tiles before the diagonal, rounded up
  double keys_a_query_tile = 0;  // other masks: key tiles that the mean query tile visits, and the reverse
  double queries_a_key_tile = 0;
  double forward_ramp = 0;  // and by how much the last one visits more and the first one less
  double backward_ramp = 0;
  PieceMask mask = PieceMask::kFull;

  // Key tiles visited by query tile `i`, query tiles by key tile `i`.
  double forward_cost(std::int64_t i) const;
  double backward_cost(std::int64_t i) const;
  double forward_tiles() const;  // sums of these
  double backward_tiles() const;
  bool operator==(const PieceTiles&) const = default;
};
PieceTiles tiles_of(const AttentionPieceSize& piece);

// Key blocks visited by all query tiles of a piece, query blocks by all its key tiles.
double forward_blocks_of(const AttentionPieceSize& piece);
double backward_blocks_of(const AttentionPieceSize& piece);

inline constexpr std::size_t kKeptPieces = 16;

// Forward tiles that hold kAttentionTile rows of several query heads of one key head: of 2, 4 or 8 heads, so 64, 32 or
// 16 query rows each. Counts are of the tiles of these heads together.
inline constexpr std::size_t kHeadPackings = 3;
struct PackedTiles {
  std::int64_t tiles = 0;
  double pairs = 0;  // visited, of one head: rows of its tiles x the key tiles that they visit
};

struct AttentionWork {
  std::int64_t pieces = 0;
  std::int64_t q_rows = 0;
  std::int64_t k_rows = 0;
  std::int64_t q_tiles = 0;       // query tiles: the work items of a forward launch
  std::int64_t k_tiles = 0;       // key tiles: the work items of a backward launch
  std::int64_t most_q_tiles = 0;  // of one piece
  std::int64_t most_k_tiles = 0;
  double pairs = 0;           // unmasked pairs; exact below 2^53
  double all_pairs = 0;       // q_rows x k_rows of each piece: `pairs` where nothing is masked
  double forward_pairs = 0;   // pairs visited by whole query tiles, estimated from the mean of visible keys
  double backward_pairs = 0;  // the same by whole key tiles
  double forward_tiles = 0;   // key tiles visited by all query tiles
  double backward_tiles = 0;  // query tiles visited by all key tiles, masked ones skipped
  std::array<PackedTiles, kHeadPackings> packed{};
  double forward_blocks = 0;            // key blocks visited by all query tiles
  double backward_blocks = 0;           // query blocks visited by all key tiles
  double unskipped_tiles = 0;           // backward tiles where masked tiles are not skipped
  double longest_forward_tile = 0;      // most key tiles that one query tile visits
  double longest_backward_tile = 0;     // most query tiles that one key tile visits
  std::array<std::int64_t, 4> masks{};  // pieces by PieceMask
  std::int64_t single_queries = 0;      // full pieces of one query row, which fit the bottom-right mask as well
  std::int64_t single_pairs = 0;        // of these, those of one key, which fit the top-left mask too
  AttentionPieceSize first;
  bool equal = true;         // all pieces are as the first
  bool shared_keys = false;  // two pieces see the same key rows; for the caller to say, sizes do not

  void add(const AttentionPieceSize& piece);
  // The other's pieces come after these.
  void merge(const AttentionWork& other);
  // Pieces of one size under one mask run as a dense batch; anything else is a ragged (varlen) call.
  bool dense() const { return equal && count(PieceMask::kOther) == 0; }
  // The one mask of all pieces; kOther if there are several. Full and square pieces together are of several, but a
  // single query, which sees all of its keys, goes with either.
  PieceMask mask() const;
  std::int64_t count(PieceMask mask) const { return masks[static_cast<std::size_t>(mask)]; }
  // The last pieces in their order: kept(0) is the earliest of the min(pieces, kKeptPieces) that are kept.
  std::size_t kept_count() const;
  const PieceTiles& kept(std::size_t i) const;

 private:
  void keep(const PieceTiles& piece, std::int64_t place);
  void pack(const AttentionPieceSize& piece, const PieceTiles& in_tiles);
  std::array<PieceTiles, kKeptPieces> kept_{};  // piece i at i mod kKeptPieces
};

AttentionWork attention_work(std::span<const AttentionPieceSize> pieces);

}  // namespace longhaul
