#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "kernels/attention/tile_plan.h"

namespace longhaul {
namespace {

// Where rows start or stop belonging to a piece, with both ends of 0 .. rows.
std::vector<std::int32_t> cuts_of(const std::vector<PieceRule>& pieces, std::int32_t PieceRule::*row,
                                  std::int32_t PieceRule::*count, std::int32_t rows) {
  std::vector<std::int32_t> cuts = {0, rows};
  for (const PieceRule& piece : pieces) {
    cuts.push_back(piece.*row);
    cuts.push_back(piece.*row + piece.*count);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

void add_query_tiles(BackwardPlan& plan) {
  const auto cuts = cuts_of(plan.pieces, &PieceRule::q_row, &PieceRule::q_count, plan.q_rows);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    for (std::int32_t row = cuts[i]; row < cuts[i + 1]; row += plan.tile_rows) {
      plan.q_tiles.push_back({row, std::min(plan.tile_rows, cuts[i + 1] - row)});
    }
  }
}

// The query tile that holds this row.
std::int32_t tile_of_row(const BackwardPlan& plan, std::int32_t row) {
  const auto after = std::upper_bound(plan.q_tiles.begin(), plan.q_tiles.end(), row,
                                      [](std::int32_t r, const QueryTile& tile) { return r < tile.q_row; });
  return static_cast<std::int32_t>(after - plan.q_tiles.begin()) - 1;
}

// Appends the query tiles of the piece that see some of the tile's keys, if any.
void add_segment(BackwardPlan& plan, KeyTile& tile, std::int32_t index) {
  const PieceRule& piece = plan.pieces[static_cast<std::size_t>(index)];
  const std::int32_t first_key = tile.k_row - piece.k_row;
  const QuerySpan first = seeing_queries(piece, first_key);
  const QuerySpan last = seeing_queries(piece, first_key + tile.k_count - 1);
  // Some key: from where the first key's queries begin to where the last key's end. All: where both spans meet.
  if (last.end <= first.begin) return;
  BackwardSegment segment;
  segment.piece = index;
  segment.k_first = first_key;
  segment.q_tile_begin = tile_of_row(plan, piece.q_row + first.begin);
  const std::int32_t q_tile_end = tile_of_row(plan, piece.q_row + last.end - 1) + 1;
  segment.q_tiles = q_tile_end - segment.q_tile_begin;
  segment.full_from = segment.q_tiles;
  segment.full_to = 0;
  for (std::int32_t i = 0; i < segment.q_tiles; ++i) {
    const QueryTile& queries = plan.q_tiles[static_cast<std::size_t>(segment.q_tile_begin + i)];
    const std::int32_t begin = queries.q_row - piece.q_row;
    if (begin < last.begin || begin + queries.q_count > first.end) continue;
    segment.full_from = std::min(segment.full_from, i);
    segment.full_to = i + 1;
  }
  plan.segments.push_back(segment);
  tile.q_tiles += segment.q_tiles;
  ++tile.segment_end;
}

BackwardSegment& segment_of(BackwardPlan& plan, const KeyTile& tile, std::int32_t index) {
  return plan.segments[static_cast<std::size_t>(tile.segment_begin + index)];
}

bool see_the_same_pieces(BackwardPlan& plan, const KeyTile& a, const KeyTile& b) {
  const std::int32_t count = a.segment_end - a.segment_begin;
  if (b.segment_end - b.segment_begin != count) return false;
  for (std::int32_t i = 0; i < count; ++i) {
    if (segment_of(plan, a, i).piece != segment_of(plan, b, i).piece) return false;
  }
  return true;
}

struct QueryTileSpan {
  std::int32_t begin = 0, end = 0;
};

// What segment `index` of key tiles begin .. end-1, which see the same pieces, covers in all.
QueryTileSpan union_of(BackwardPlan& plan, std::size_t begin, std::size_t end, std::int32_t index) {
  const BackwardSegment& first = segment_of(plan, plan.tiles[begin], index);
  QueryTileSpan span{first.q_tile_begin, first.q_tile_begin + first.q_tiles};
  for (std::size_t t = begin + 1; t < end; ++t) {
    const BackwardSegment& segment = segment_of(plan, plan.tiles[t], index);
    span.begin = std::min(span.begin, segment.q_tile_begin);
    span.end = std::max(span.end, segment.q_tile_begin + segment.q_tiles);
  }
  return span;
}

// Widens the segments of key tiles begin .. end-1, which see the same pieces, to the union of their query tiles.
void join(BackwardPlan& plan, std::size_t begin, std::size_t end) {
  const KeyTile first = plan.tiles[begin];
  for (std::int32_t i = 0; i < first.segment_end - first.segment_begin; ++i) {
    const auto [from, to] = union_of(plan, begin, end, i);
    for (std::size_t t = begin; t < end; ++t) {
      BackwardSegment& segment = segment_of(plan, plan.tiles[t], i);
      const std::int32_t before = segment.q_tile_begin - from;
      plan.tiles[t].q_tiles += to - from - segment.q_tiles;
      segment.q_tile_begin = from;
      segment.q_tiles = to - from;
      if (segment.full_from < segment.full_to) {
        segment.full_from += before;
        segment.full_to += before;
      } else {
        segment.full_from = segment.q_tiles;
        segment.full_to = 0;
      }
    }
  }
}

bool visit_the_same(BackwardPlan& plan, const KeyTile& a, const KeyTile& b) {
  if (!see_the_same_pieces(plan, a, b)) return false;
  for (std::int32_t i = 0; i < a.segment_end - a.segment_begin; ++i) {
    const BackwardSegment &x = segment_of(plan, a, i), &y = segment_of(plan, b, i);
    if (x.q_tile_begin != y.q_tile_begin || x.q_tiles != y.q_tiles) return false;
  }
  return true;
}

// Whether key tiles begin .. end-1 are better off visiting the union of their query tiles.
bool worth_joining(BackwardPlan& plan, std::size_t begin, std::size_t end, const BackwardGroups& groups) {
  const KeyTile first = plan.tiles[begin];
  std::int64_t steps = 0, fetches = 0, joined = 0;
  for (std::size_t t = begin; t < end; ++t) {
    steps += plan.tiles[t].q_tiles;
    if (t == begin || !visit_the_same(plan, plan.tiles[t - 1], plan.tiles[t])) fetches += plan.tiles[t].q_tiles;
  }
  for (std::int32_t i = 0; i < first.segment_end - first.segment_begin; ++i) {
    const QueryTileSpan span = union_of(plan, begin, end, i);
    joined += span.end - span.begin;
  }
  const std::int64_t added = joined * static_cast<std::int64_t>(end - begin) - steps;
  return joined > groups.cached_q_tiles &&
         static_cast<double>(added) <= groups.fetch_steps * static_cast<double>(fetches - joined);
}

// `plan` has its tiles in order of their rows.
void join_groups(BackwardPlan& plan, const BackwardGroups& groups) {
  for (std::size_t begin = 0, end; begin < plan.tiles.size(); begin = end) {
    end = begin + 1;
    while (end < plan.tiles.size() && end - begin < static_cast<std::size_t>(groups.tiles) &&
           see_the_same_pieces(plan, plan.tiles[begin], plan.tiles[end])) {
      ++end;
    }
    if (worth_joining(plan, begin, end, groups)) join(plan, begin, end);
  }
}

}  // namespace

BackwardPlan plan_backward(std::span<const Piece> pieces, std::int64_t q_rows, std::int64_t k_rows,
                           std::int32_t tile_rows, std::int32_t tile_keys, const BackwardGroups& groups) {
  if (groups.tiles < 1) throw std::invalid_argument(fmt::format("attention key tiles in groups of {}", groups.tiles));
  const TilePlan checked = plan_tiles(pieces, q_rows, k_rows, tile_rows, tile_keys);
  BackwardPlan plan;
  plan.tile_rows = tile_rows;
  plan.tile_keys = tile_keys;
  plan.q_rows = checked.q_rows;
  plan.k_rows = checked.k_rows;
  plan.pieces = checked.pieces;
  add_query_tiles(plan);
  const auto cuts = cuts_of(plan.pieces, &PieceRule::k_row, &PieceRule::k_count, plan.k_rows);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    std::vector<std::int32_t> holding;  // pieces that hold these key rows
    for (std::size_t p = 0; p < plan.pieces.size(); ++p) {
      const PieceRule& piece = plan.pieces[p];
      if (piece.k_row <= cuts[i] && cuts[i + 1] <= piece.k_row + piece.k_count) {
        holding.push_back(static_cast<std::int32_t>(p));
      }
    }
    for (std::int32_t row = cuts[i]; row < cuts[i + 1]; row += tile_keys) {
      const auto segments = static_cast<std::int32_t>(plan.segments.size());
      KeyTile tile{row, std::min(tile_keys, cuts[i + 1] - row), segments, segments, 0};
      for (const std::int32_t piece : holding) add_segment(plan, tile, piece);
      plan.tiles.push_back(tile);
    }
  }
  if (groups.tiles > 1) join_groups(plan, groups);
  std::stable_sort(plan.tiles.begin(), plan.tiles.end(),
                   [](const KeyTile& a, const KeyTile& b) { return a.q_tiles > b.q_tiles; });
  return plan;
}

}  // namespace longhaul
