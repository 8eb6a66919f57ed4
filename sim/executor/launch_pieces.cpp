#include "sim/executor/launch_pieces.h"

namespace longhaul {
namespace {

struct Rectangle {
  std::int64_t q_row = 0, k_row = 0;
  std::int16_t operand = 0;
  AttentionPieceSize size;

  PieceMask mask() const { return mask_of(size); }
};

bool full(const Rectangle& one) { return one.size.pairs == one.size.q_rows * one.size.k_rows; }

// Whether the last query sees all keys and each one before it one key less.
bool causal(const Rectangle& one) {
  return one.mask() == PieceMask::kSquareCausal || one.mask() == PieceMask::kOffsetCausal;
}

// The same queries, keys that follow: all of the first and a causal or full part behind it.
bool joins_keys(const Rectangle& first, const Rectangle& next) {
  return first.operand == next.operand && first.q_row == next.q_row && first.size.q_rows == next.size.q_rows &&
         first.k_row + first.size.k_rows == next.k_row && full(first) && (full(next) || causal(next));
}

// Queries that follow: on the same keys without a mask, or the continuation of a causal square.
bool joins_queries(const Rectangle& first, const Rectangle& next) {
  if (first.operand != next.operand || first.q_row + first.size.q_rows != next.q_row || first.k_row != next.k_row) {
    return false;
  }
  if (first.size.k_rows == next.size.k_rows) return full(first) && full(next);
  return causal(first) && causal(next) && next.size.k_rows == first.size.k_rows + next.size.q_rows;
}

// Other queries on the same keys, both by rules of blocks: key tiles that a backward pass goes through once.
bool shares_keys(const Rectangle& first, const Rectangle& next) {
  return first.operand == next.operand && first.k_row == next.k_row && first.size.k_rows == next.size.k_rows &&
         first.mask() == PieceMask::kOther && next.mask() == PieceMask::kOther;
}

template <typename Joins, typename Join>
std::vector<Rectangle> joined(const std::vector<Rectangle>& rectangles, const Joins& joins, const Join& join) {
  std::vector<Rectangle> out;
  for (const Rectangle& one : rectangles) {
    if (!out.empty() && joins(out.back(), one)) {
      join(out.back(), one);
      out.back().size.pairs += one.size.pairs;
    } else {
      out.push_back(one);
    }
  }
  return out;
}

}  // namespace

std::vector<AttentionPieceSize> launch_pieces(const PieceList& list) {
  std::vector<Rectangle> rectangles;
  rectangles.reserve(list.pieces.size());
  for (const Piece& piece : list.pieces) {
    rectangles.push_back({piece.q_row, piece.k_row, piece.operand, {piece.q_count, piece.k_count, piece.pairs}});
  }
  rectangles = joined(rectangles, joins_keys,
                      [](Rectangle& into, const Rectangle& next) { into.size.k_rows += next.size.k_rows; });
  rectangles = joined(rectangles, joins_queries, [](Rectangle& into, const Rectangle& next) {
    into.size.q_rows += next.size.q_rows;
    into.size.k_rows = next.size.k_rows;
  });
  rectangles = joined(rectangles, shares_keys,
                      [](Rectangle& into, const Rectangle& next) { into.size.q_rows += next.size.q_rows; });
  std::vector<AttentionPieceSize> sizes;
  sizes.reserve(rectangles.size());
  for (const Rectangle& one : rectangles) sizes.push_back(one.size);
  return sizes;
}

}  // namespace longhaul
