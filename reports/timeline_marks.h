// View data of the timeline: rows (rank x stream) of marks, few enough to draw.
//
// Units: Time. A mark is one op, or neighbours of one row that are each shorter than `resolution` and together no
// longer than it, merged: `count` says how many, `busy` how much of it they fill, `shares` with what; its class is that
// which fills the most. Invariants: the marks of a row rise and never overlap; counts sum to the ops of the row; busy
// sums to theirs. Ignores: waits between streams; what a collective waited before its members had arrived (its mark
// starts when all have).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/timeline/traced.h"

namespace longhaul {

// What colours a mark. Collectives are coloured by their stream: kFirstCollectiveClass + (stream - first one).
inline constexpr int kGemmClass = 0;
inline constexpr int kAttentionClass = 1;
inline constexpr int kMemoryClass = 2;  // element-wise kernels, merges of partial results, copies
inline constexpr int kOptimizerClass = 3;
inline constexpr int kFirstCollectiveClass = 4;

int mark_class(const OpRecord& op);

struct Mark {
  int colour = 0;  // class
  Time start, end;
  Time busy;                                 // of the ops in it; end - start for a single one
  std::int32_t count = 1;                    // ops
  std::vector<std::pair<int, Time>> shares;  // busy time by class, if merged; empty for a single op
  std::int32_t first = 0;                    // index of its first op in Traced::timeline.ops
};

struct MarkRow {
  std::int32_t rank = 0;
  StreamId stream = 0;
  std::vector<Mark> marks;
};

struct TimelineView {
  std::vector<MarkRow> rows;  // by rank, then stream; rows without ops are left out
  Time begin, end;            // what is drawn
  Time resolution;            // zero: nothing was merged
  std::int64_t ops = 0;       // drawn, merged ones counted each
  std::int32_t ranks = 0;     // drawn
  std::int32_t ranks_traced = 0;
  std::int64_t ops_outside = 0;     // before `begin` or after `end`: not drawn
  Time outside_begin, outside_end;  // where those stand

  std::size_t marks() const;
};

// At most `max_marks` marks, but at least 4 a row. Of more than `max_ranks` traced ranks the lowest are drawn, the one
// that ends last among them. Where only a part of a step was traced, a gap without any op of more
// than a third of the whole span splits the picture: the longer side is drawn, the other counted as outside.
TimelineView timeline_view(const Traced& traced, std::size_t max_marks, std::int32_t max_ranks = 8);

}  // namespace longhaul
