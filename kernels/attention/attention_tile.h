// The work list of an attention launch as the device reads it; tile_plan.h says what it means and makes it.
#pragma once

#include <cstdint>

#include "kernels/attention/visible_keys.h"

namespace longhaul {

// The keys of one piece that some row of a query tile sees.
struct AttentionSegment {
  std::int32_t piece = 0;
  std::int32_t k_first = 0;                 // first key of the segment, counted in the piece
  std::int32_t key_tiles = 0;               // at least 1
  std::int32_t full_from = 0, full_to = 0;  // key tiles full_from .. full_to-1 need no mask
};

struct AttentionTile {
  std::int32_t q_row = 0, q_count = 0;  // 1 <= q_count <= tile rows
  std::int32_t segment_begin = 0, segment_end = 0;
  std::int32_t key_tiles = 0;  // sum over its segments
};

// All in device memory.
struct DeviceTiles {
  const AttentionTile* tiles = nullptr;
  const AttentionSegment* segments = nullptr;
  const PieceRule* pieces = nullptr;
  std::int32_t tile_count = 0;
};

// ---- backward: key tiles, each with the query tiles that see some of it

// The query tiles (in order of their rows) of one piece that see some key of a key tile.
struct BackwardSegment {
  std::int32_t piece = 0;
  std::int32_t k_first = 0;                    // the key tile's first key, counted in the piece
  std::int32_t q_tile_begin = 0, q_tiles = 0;  // at least 1
  std::int32_t full_from = 0, full_to = 0;     // of those, full_from .. full_to-1 see all keys of the tile
};

struct KeyTile {
  std::int32_t k_row = 0, k_count = 0;  // 1 <= k_count <= tile keys
  std::int32_t segment_begin = 0, segment_end = 0;
  std::int32_t q_tiles = 0;  // sum over its segments
};

struct QueryTile {
  std::int32_t q_row = 0, q_count = 0;
};

// All in device memory.
struct DeviceKeyTiles {
  const KeyTile* tiles = nullptr;
  const BackwardSegment* segments = nullptr;
  const QueryTile* q_tiles = nullptr;
  const PieceRule* pieces = nullptr;
  std::int32_t tile_count = 0, q_tile_count = 0;
};

}  // namespace longhaul
