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

}  // namespace longhaul
