#include "kernels/attention/tile_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace longhaul {
namespace {

[[noreturn]] void refuse(std::size_t index, const std::string& why) {
  throw std::invalid_argument(fmt::format("attention piece {}: {}", index, why));
}

void check_run(std::size_t index, const char* side, std::int64_t run, std::int64_t stride) {
  if (run < 0 || (run > 0 && stride < run)) {
    refuse(index, fmt::format("{} runs of {} every {} tokens; a run is 0 or at most its stride", side, run, stride));
  }
}

void check_piece(std::size_t index, const Piece& piece, std::int64_t q_rows, std::int64_t k_rows) {
  const auto inside = [](std::int64_t row, std::int64_t count, std::int64_t rows) {
    return row >= 0 && count >= 1 && count <= rows && row <= rows - count;
  };
  if (!inside(piece.q_row, piece.q_count, q_rows)) {
    refuse(index, fmt::format("query rows {} + {} are not within 0 .. {}", piece.q_row, piece.q_count, q_rows - 1));
  }
  if (!inside(piece.k_row, piece.k_count, k_rows)) {
    refuse(index, fmt::format("key rows {} + {} are not within 0 .. {}", piece.k_row, piece.k_count, k_rows - 1));
  }
  if (piece.operand != 0) refuse(index, fmt::format("operand {}; one launch reads operand 0", piece.operand));
  check_run(index, "query", piece.q_run, piece.q_stride);
  check_run(index, "key", piece.k_run, piece.k_stride);
  const bool by_block = piece.rule != MaskRule::kFull && piece.rule != MaskRule::kCausal;
  if (by_block && piece.block < 1) refuse(index, fmt::format("a block rule with blocks of {}", piece.block));
  const std::int64_t last_query = piece.query_token(piece.q_count - 1);
  const std::int64_t last_key = piece.key_token(piece.k_count - 1);
  if (piece.q_token < 0 || piece.k_token < 0 || piece.block >= kMaxAttentionRows || last_query >= kMaxAttentionRows ||
      last_key >= kMaxAttentionRows) {
    refuse(index, fmt::format("tokens {} .. {} and {} .. {} or blocks of {} overflow; all lie in 0 .. 2^30 - 1",
                              piece.q_token, last_query, piece.k_token, last_key, piece.block));
  }
}

PieceRule rule_of(const Piece& piece) {
  PieceRule rule;
  rule.q_row = static_cast<std::int32_t>(piece.q_row);
  rule.q_count = static_cast<std::int32_t>(piece.q_count);
  rule.q_token = static_cast<std::int32_t>(piece.q_token);
  rule.q_run = piece.q_run;
  rule.q_stride = piece.q_stride;
  rule.k_row = static_cast<std::int32_t>(piece.k_row);
  rule.k_count = static_cast<std::int32_t>(piece.k_count);
  rule.k_token = static_cast<std::int32_t>(piece.k_token);
  rule.k_run = piece.k_run;
  rule.k_stride = piece.k_stride;
  rule.block = piece.block;
  rule.rule = static_cast<KeyRule>(piece.rule);
  return rule;
}

// Rows between two cuts see the same pieces.
std::vector<std::int32_t> cuts_of(const std::vector<PieceRule>& rules, std::span<const Piece> pieces,
                                  std::int32_t q_rows) {
  std::vector<std::int32_t> cuts = {0, q_rows};
  for (std::size_t i = 0; i < rules.size(); ++i) {
    cuts.push_back(rules[i].q_row);
    cuts.push_back(rules[i].q_row + static_cast<std::int32_t>(pieces[i].q_count));
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

// Appends what the tile's rows see of the piece, if anything.
void add_segment(TilePlan& plan, AttentionTile& tile, std::int32_t piece) {
  const PieceRule& rule = plan.pieces[static_cast<std::size_t>(piece)];
  const std::int32_t keys = plan.tile_keys;
  const KeySpan first = visible_keys(rule, tile.q_row - rule.q_row);
  const KeySpan last = visible_keys(rule, tile.q_row - rule.q_row + tile.q_count - 1);
  if (last.end <= first.begin) return;
  AttentionSegment segment;
  segment.piece = piece;
  segment.k_first = first.begin;
  segment.key_tiles = (last.end - first.begin + keys - 1) / keys;
  segment.full_from = (std::max(0, last.begin - first.begin) + keys - 1) / keys;
  segment.full_to = std::max(0, first.end - first.begin) / keys;
  plan.segments.push_back(segment);
  tile.key_tiles += segment.key_tiles;
  ++tile.segment_end;
}

// Tiles of rows begin .. end-1, which see the pieces `seen`.
void add_tiles(TilePlan& plan, std::int32_t begin, std::int32_t end, const std::vector<std::int32_t>& seen) {
  for (std::int32_t row = begin; row < end; row += plan.tile_rows) {
    const auto segments = static_cast<std::int32_t>(plan.segments.size());
    AttentionTile tile{row, std::min(plan.tile_rows, end - row), segments, segments, 0};
    for (const std::int32_t piece : seen) add_segment(plan, tile, piece);
    plan.tiles.push_back(tile);
  }
}

void add_all_tiles(TilePlan& plan, std::span<const Piece> pieces) {
  const std::vector<std::int32_t> cuts = cuts_of(plan.pieces, pieces, plan.q_rows);
  std::vector<std::int32_t> by_start(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) by_start[i] = static_cast<std::int32_t>(i);
  std::stable_sort(by_start.begin(), by_start.end(), [&](std::int32_t a, std::int32_t b) {
    return plan.pieces[static_cast<std::size_t>(a)].q_row < plan.pieces[static_cast<std::size_t>(b)].q_row;
  });
  std::size_t next = 0;
  std::vector<std::int32_t> seen;
  for (std::size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
    std::erase_if(seen, [&](std::int32_t piece) {
      const Piece& source = pieces[static_cast<std::size_t>(piece)];
      return source.q_row + source.q_count <= cuts[cut];
    });
    for (; next < by_start.size(); ++next) {
      if (plan.pieces[static_cast<std::size_t>(by_start[next])].q_row > cuts[cut]) break;
      seen.push_back(by_start[next]);
    }
    add_tiles(plan, cuts[cut], cuts[cut + 1], seen);
  }
}

}  // namespace

std::int64_t TilePlan::key_tiles() const {
  std::int64_t sum = 0;
  for (const AttentionTile& tile : tiles) sum += tile.key_tiles;
  return sum;
}

TilePlan plan_tiles(std::span<const Piece> pieces, std::int64_t q_rows, std::int64_t k_rows, std::int32_t tile_rows,
                    std::int32_t tile_keys) {
  if (q_rows < 0 || k_rows < 0 || q_rows >= kMaxAttentionRows || k_rows >= kMaxAttentionRows) {
    throw std::invalid_argument(
        fmt::format("attention over {} query and {} key rows: each must be in 0 .. 2^30 - 1", q_rows, k_rows));
  }
  if (tile_rows < 1 || tile_keys < 1) {
    throw std::invalid_argument(fmt::format("attention tiles of {} x {}", tile_rows, tile_keys));
  }
  TilePlan plan;
  plan.tile_rows = tile_rows;
  plan.tile_keys = tile_keys;
  plan.q_rows = static_cast<std::int32_t>(q_rows);
  plan.k_rows = static_cast<std::int32_t>(k_rows);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    check_piece(i, pieces[i], q_rows, k_rows);
    plan.pieces.push_back(rule_of(pieces[i]));
  }
  add_all_tiles(plan, pieces);
  std::stable_sort(plan.tiles.begin(), plan.tiles.end(),
                   [](const AttentionTile& a, const AttentionTile& b) { return a.key_tiles > b.key_tiles; });
  return plan;
}

}  // namespace longhaul
