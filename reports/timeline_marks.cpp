#include "reports/timeline_marks.h"

#include <algorithm>
#include <map>
#include <utility>

namespace longhaul {
namespace {

using RowKey = std::pair<std::int32_t, StreamId>;
using OpList = std::vector<std::int32_t>;  // indices into the records, by start

const OpRecord& op_at(const Traced& traced, std::int32_t index) {
  return traced.timeline->ops[static_cast<std::size_t>(index)];
}

// The ranks to draw, sorted: the lowest ones and the one that ends last.
std::vector<std::int32_t> drawn_ranks(const Traced& traced, std::int32_t max_ranks, TimelineView& view) {
  std::map<std::int32_t, Time> ends;
  for (const OpRecord& op : traced.timeline->ops) ends[op.rank] = std::max(ends[op.rank], op.end);
  view.ranks_traced = static_cast<std::int32_t>(ends.size());
  std::vector<std::int32_t> ranks;
  for (const auto& [rank, end] : ends) ranks.push_back(rank);
  if (view.ranks_traced > max_ranks) {
    const auto last =
        std::max_element(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    ranks.resize(static_cast<std::size_t>(max_ranks));
    if (last->first > ranks.back()) ranks.back() = last->first;
  }
  view.ranks = static_cast<std::int32_t>(ranks.size());
  return ranks;
}

// All ops of the ranks, by start (equal starts: by end, then as recorded).
OpList by_start(const Traced& traced, const std::vector<std::int32_t>& ranks) {
  OpList order;
  for (std::size_t i = 0; i < traced.timeline->ops.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    if (std::binary_search(ranks.begin(), ranks.end(), op_at(traced, index).rank)) order.push_back(index);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const OpRecord &left = op_at(traced, a), &right = op_at(traced, b);
    return std::pair(left.start, left.end) < std::pair(right.start, right.end);
  });
  return order;
}

// The first op after the largest stretch in which no traced stream does anything, if that takes over a third of the
// span; order.size() otherwise.
std::size_t split_at_gap(const Traced& traced, const OpList& order) {
  Time first = op_at(traced, order.front()).start;
  Time reach = op_at(traced, order.front()).end;
  Time widest;
  std::size_t split = order.size();
  for (std::size_t i = 1; i < order.size(); ++i) {
    const OpRecord& op = op_at(traced, order[i]);
    if (op.start > reach && op.start - reach > widest) {
      widest = op.start - reach;
      split = i;
    }
    reach = std::max(reach, op.end);
  }
  return widest.ps() > (reach - first).ps() / 3 ? split : order.size();
}

Time last_end(const Traced& traced, const OpList& order, std::size_t begin, std::size_t end) {
  Time last;
  for (std::size_t i = begin; i < end; ++i) last = std::max(last, op_at(traced, order[i]).end);
  return last;
}

// Leaves the drawn ops in `order` and notes the others in the view.
void choose_window(const Traced& traced, OpList& order, TimelineView& view) {
  const std::size_t split = split_at_gap(traced, order);
  const auto span = [&](std::size_t begin, std::size_t end) {
    return std::pair(op_at(traced, order[begin]).start, last_end(traced, order, begin, end));
  };
  if (split == order.size()) {
    std::tie(view.begin, view.end) = span(0, order.size());
    return;
  }
  const auto before = span(0, split), after = span(split, order.size());
  const bool keep_before = before.second - before.first >= after.second - after.first;
  std::tie(view.begin, view.end) = keep_before ? before : after;
  std::tie(view.outside_begin, view.outside_end) = keep_before ? after : before;
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(split);
  const OpList drawn = keep_before ? OpList(order.begin(), middle) : OpList(middle, order.end());
  view.ops_outside = static_cast<std::int64_t>(order.size() - drawn.size());
  order = drawn;
}

// Collects ops into one mark as long as they stay within the resolution.
class Merger {
 public:
  Merger(const Traced& traced, Time resolution) : traced_(traced), resolution_(resolution) {}

  std::vector<Mark> merge(const OpList& ops) {
    for (const std::int32_t index : ops) add(index);
    flush();
    return std::move(marks_);
  }

 private:
  void add(std::int32_t index) {
    const OpRecord& op = op_at(traced_, index);
    const bool small = op.end - op.start < resolution_;
    const bool joins = open_ && small && small_ && op.end - mark_.start <= resolution_;
    if (!joins) {
      flush();
      mark_ = Mark{mark_class(op), op.start, op.end, Time(), 0, {}, index};
      open_ = true;
      small_ = small;
    }
    mark_.end = std::max(mark_.end, op.end);
    mark_.busy += op.end - op.start;
    ++mark_.count;
    busy_by_class_[mark_class(op)] += op.end - op.start;
  }

  void flush() {
    if (!open_) return;
    const auto most = std::max_element(busy_by_class_.begin(), busy_by_class_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    mark_.colour = most->first;
    if (mark_.count > 1) mark_.shares.assign(busy_by_class_.begin(), busy_by_class_.end());
    marks_.push_back(mark_);
    busy_by_class_.clear();
    open_ = false;
  }

  const Traced& traced_;
  Time resolution_;
  std::vector<Mark> marks_;
  Mark mark_;
  bool open_ = false;
  bool small_ = false;
  std::map<int, Time> busy_by_class_;
};

std::size_t count_marks(const std::vector<MarkRow>& rows) {
  std::size_t count = 0;
  for (const MarkRow& row : rows) count += row.marks.size();
  return count;
}

std::vector<MarkRow> merge_rows(const Traced& traced, const std::map<RowKey, OpList>& rows, Time resolution) {
  std::vector<MarkRow> merged;
  for (const auto& [key, ops] : rows) {
    merged.push_back({key.first, key.second, Merger(traced, resolution).merge(ops)});
  }
  return merged;
}

}  // namespace

int mark_class(const OpRecord& op) {
  switch (op.kind) {
    case OpKind::kGemm:
      return kGemmClass;
    case OpKind::kAttention:
      return kAttentionClass;
    case OpKind::kOptimizer:
      return kOptimizerClass;
    case OpKind::kCollective:
      return kFirstCollectiveClass + std::max(0, op.stream - kFirstCommunicationStream);
    case OpKind::kMergePartials:
    case OpKind::kElementwise:
    case OpKind::kMove:
      break;
  }
  return kMemoryClass;
}

std::size_t TimelineView::marks() const { return count_marks(rows); }

TimelineView timeline_view(const Traced& traced, std::size_t max_marks, std::int32_t max_ranks) {
  TimelineView view;
  OpList order = by_start(traced, drawn_ranks(traced, max_ranks, view));
  if (order.empty()) return view;
  choose_window(traced, order, view);
  view.ops = static_cast<std::int64_t>(order.size());
  std::map<RowKey, OpList> rows;
  for (const std::int32_t index : order)
    rows[{op_at(traced, index).rank, op_at(traced, index).stream}].push_back(index);

  view.rows = merge_rows(traced, rows, Time());
  const std::size_t most = std::max(max_marks, 4 * rows.size());
  if (view.marks() <= most) return view;
  // Fewer stretches make fewer marks; with one stretch a row has at most three. The most stretches that are few enough:
  std::vector<std::int64_t> stretches;
  for (std::int64_t count = 100'000; count > 1; count = count * 3 / 4) stretches.push_back(count);
  stretches.push_back(1);
  const auto resolution = [&](std::int64_t count) { return Time::from_ps((view.end - view.begin).ps() / count + 1); };
  const auto chosen = std::partition_point(stretches.begin(), stretches.end() - 1, [&](std::int64_t count) {
    return count_marks(merge_rows(traced, rows, resolution(count))) > most;
  });
  view.resolution = resolution(*chosen);
  view.rows = merge_rows(traced, rows, view.resolution);
  return view;
}

}  // namespace longhaul
