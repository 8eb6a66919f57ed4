// How long the multiprocessors are busy with one attention launch, in tiles: a list schedule of its work items.
//
// An item is a query tile of one query head (forward) or a key tile of one head (backward); it takes the tiles that it
// visits and kItemTiles more for its start and end. Items are handed out in order, each to the multiprocessor that is
// free first. cuDNN's grids go over the tiles of a head, then heads, then sequences (measured: with any other order the
// causal calls of validate/data/h200/attention_calls.csv do not come to one rate; docs/accuracy-log.md). Our own
// kernels draw the longest first.
//
// Only the end of a schedule needs its items one by one: all but the last 4 to 5 items a multiprocessor are charged
// their sum over the multiprocessors, in whole rounds, so that equal items give their waves exactly. Those last items
// are taken from the pieces that AttentionWork kept; where these are fewer, the end is simulated with what there is.
// Complexity: O(5 m log m) for m multiprocessors. Deterministic; + - * / and comparisons.
#pragma once

#include <cstdint>

#include "sim/cost/attention_work.h"

namespace longhaul {

inline constexpr double kItemTiles = 1;

enum class ItemOrder : std::uint8_t { kGrid, kLongestFirst };

struct AttentionItems {
  bool forward = true;
  bool skips_masked = true;  // backward: key tiles visit no query tile that is masked whole
  std::int64_t heads = 1;    // items a tile
  double tiles_a_tile = 1;   // query heads that one item goes through (backward of our kernels: a key head's)
  ItemOrder order = ItemOrder::kGrid;
};

// Tiles that all items visit together.
double visited_tiles(const AttentionWork& work, const AttentionItems& items);
// In tiles of one multiprocessor. At least one piece.
double attention_span(const AttentionWork& work, const AttentionItems& items, int multiprocessors);

}  // namespace longhaul
