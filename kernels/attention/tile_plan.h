// What one attention launch does: the queries cut into tiles, each with the key tiles that it must visit.
//
// The query rows are cut where a piece begins or ends, then into tiles of at most `tile_rows`. A tile's segments are
// the pieces that name its rows; a segment covers the keys that any of its rows sees, cut into tiles of `tile_keys`
// from the first of them on, and says which of those every row sees whole, so that only the others are masked. Every
// query row is in exactly one tile; rows that no piece names are in tiles without segments. Tiles stand in order of
// falling cost: the launch hands out the long ones first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/attention_tile.h"
#include "sim/schedule/piece.h"

namespace longhaul {

struct TilePlan {
  std::int32_t tile_rows = 0, tile_keys = 0;
  std::int32_t q_rows = 0, k_rows = 0;
  std::vector<AttentionTile> tiles;
  std::vector<AttentionSegment> segments;
  std::vector<PieceRule> pieces;

  std::int64_t key_tiles() const;  // visited, over all tiles, one head
};

// Pieces of operand 0 within q_rows x k_rows. Throws std::invalid_argument, naming the piece and what is allowed, for a
// piece outside, another operand, a block rule without a block, runs that do not fit their stride, or rows, tokens or
// tile counts that overflow (kMaxAttentionRows).
TilePlan plan_tiles(std::span<const Piece> pieces, std::int64_t q_rows, std::int64_t k_rows, std::int32_t tile_rows,
                    std::int32_t tile_keys);

// What a backward launch does: the keys cut into tiles where a piece begins or ends, each with the query tiles that see
// some of it. Query tiles are cut like a forward plan's. Every key row is in exactly one key tile and every query row
// in exactly one query tile. Key tiles stand in order of falling cost, query tiles in order of their rows.
//
// Key tiles in a row that see of the same pieces may be joined: they also visit the same query tiles, the union of
// theirs; what a key tile does not see is masked. They take equally long, so that those that start together stay
// together and read each query tile, and add to its dQ, at about the same time: the L2 fetches it once for all of them.
struct BackwardPlan {
  std::int32_t tile_rows = 0, tile_keys = 0;
  std::int32_t q_rows = 0, k_rows = 0;
  std::vector<KeyTile> tiles;
  std::vector<BackwardSegment> segments;
  std::vector<QueryTile> q_tiles;
  std::vector<PieceRule> pieces;
};

// Which key tiles are joined: `tiles` in a row, where the steps (pairs of a key and a query tile) that it adds are at
// most `fetch_steps` of the fetches from device memory that it saves, and where they visit more than `cached_q_tiles`.
// The queries of fewer stay in the L2, and neighbours find them there however far apart they are.
struct BackwardGroups {
  std::int32_t tiles = 1;
  double fetch_steps = 0.03;  // of a masked step; docs/performance-log.md, "Attention backward on Hopper"
  std::int32_t cached_q_tiles = 0;
};

// Throws as plan_tiles does, and for groups of less than 1.
BackwardPlan plan_backward(std::span<const Piece> pieces, std::int64_t q_rows, std::int64_t k_rows,
                           std::int32_t tile_rows, std::int32_t tile_keys, const BackwardGroups& groups = {});

}  // namespace longhaul
