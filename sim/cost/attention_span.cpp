#include "sim/cost/attention_span.h"

#include <algorithm>
#include <vector>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr std::int64_t kRoundsAtTheEnd = 4;

std::int64_t items_of(const PieceTiles& piece, const AttentionItems& items) {
  return items.forward ? piece.q_tiles : piece.k_tiles;
}

double cost_of(const PieceTiles& piece, std::int64_t i, const AttentionItems& items) {
  if (items.forward) return piece.forward_cost(i) + kItemTiles;
  const double visited = items.skips_masked ? piece.backward_cost(i) : as_double(piece.q_tiles);
  return visited * items.tiles_a_tile + kItemTiles;
}

// The last `most` items in the order of a grid, the last one first.
std::vector<double> grid_end(const AttentionWork& work, const AttentionItems& items, std::int64_t most) {
  std::vector<double> end;
  end.reserve(static_cast<std::size_t>(most));
  for (std::size_t p = work.kept_count(); p-- > 0;) {
    const PieceTiles& piece = work.kept(p);
    for (std::int64_t head = 0; head < items.heads; ++head) {
      for (std::int64_t i = items_of(piece, items); i-- > 0;) {
        if (static_cast<std::int64_t>(end.size()) == most) return end;
        end.push_back(cost_of(piece, i, items));
      }
    }
  }
  return end;
}

// The shortest `most` items of the kept pieces, the shortest first.
std::vector<double> longest_first_end(const AttentionWork& work, const AttentionItems& items, std::int64_t most) {
  std::vector<double> one_head;
  for (std::size_t p = 0; p < work.kept_count(); ++p) {
    const PieceTiles& piece = work.kept(p);
    for (std::int64_t i = 0; i < items_of(piece, items); ++i) one_head.push_back(cost_of(piece, i, items));
  }
  // So many of one head's items, and no others, can be among the last.
  const auto wanted =
      std::min<std::int64_t>((most + items.heads - 1) / items.heads, static_cast<std::int64_t>(one_head.size()));
  std::partial_sort(one_head.begin(), one_head.begin() + wanted, one_head.end());
  std::vector<double> end;
  end.reserve(static_cast<std::size_t>(most));
  for (std::int64_t i = 0; i < wanted; ++i) {
    const double cost = one_head[static_cast<std::size_t>(i)];
    for (std::int64_t head = 0; head < items.heads; ++head) {
      if (static_cast<std::int64_t>(end.size()) == most) return end;
      end.push_back(cost);
    }
  }
  return end;
}

// The least of a heap with the least in front becomes `value`: one way down, where pop and push would go down and up.
void replace_least(std::vector<double>& heap, double value) {
  std::size_t at = 0;
  for (std::size_t child = 1; child < heap.size(); child = 2 * at + 1) {
    if (child + 1 < heap.size() && heap[child + 1] < heap[child]) ++child;
    if (value <= heap[child]) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = value;
}

// When the last of the items ends that begin, from the back of the list on, on free multiprocessors.
double list_schedule(const std::vector<double>& reversed, int multiprocessors) {
  std::vector<double> free_at(static_cast<std::size_t>(multiprocessors), 0.0);  // a heap, the earliest first
  double last = 0;
  for (std::size_t i = reversed.size(); i-- > 0;) {
    const double end = free_at.front() + reversed[i];
    last = std::max(last, end);
    replace_least(free_at, end);
  }
  return last;
}

}  // namespace

double visited_tiles(const AttentionWork& work, const AttentionItems& items) {
  const double visited = items.forward        ? work.forward_tiles
                         : items.skips_masked ? work.backward_tiles
                                              : work.unskipped_tiles;
  return as_double(items.heads) * visited * items.tiles_a_tile;
}

double attention_span(const AttentionWork& work, const AttentionItems& items, int multiprocessors) {
  LH_ASSERT(work.pieces >= 1 && items.heads >= 1 && multiprocessors >= 1,
            "a span of {} pieces, {} heads, {} processors", work.pieces, items.heads, multiprocessors);
  const std::int64_t count = (items.forward ? work.q_tiles : work.k_tiles) * items.heads;
  const double total = visited_tiles(work, items) + kItemTiles * as_double(count);
  const std::int64_t rounds = std::max<std::int64_t>(0, count / multiprocessors - kRoundsAtTheEnd);
  const std::int64_t most = count - rounds * multiprocessors;
  const std::vector<double> end =
      items.order == ItemOrder::kGrid ? grid_end(work, items, most) : longest_first_end(work, items, most);
  double of_end = 0;
  for (const double cost : end) of_end += cost;
  const double span = std::max(0.0, total - of_end) / multiprocessors + list_schedule(end, multiprocessors);
  const double longest = items.forward        ? work.longest_forward_tile
                         : items.skips_masked ? work.longest_backward_tile
                                              : as_double(work.most_q_tiles);
  return std::max(span, longest * items.tiles_a_tile + kItemTiles);
}

}  // namespace longhaul
