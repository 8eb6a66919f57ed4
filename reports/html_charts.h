// The pictures of a report as HTML with inline SVG: what view data looks like. No decisions are made here.
//
// All coordinates across the page are percentages or sit in a stretched viewBox, so that a picture fits any width while
// its text keeps its size. Colours are CSS classes (reports/web/report.css): p0.. for parts of time, c0.. for classes
// of marks.
#pragma once

#include <string>
#include <vector>

#include "reports/memory_curve.h"
#include "reports/result_rows.h"
#include "reports/step_bars.h"
#include "reports/timeline_marks.h"
#include "reports/verdict.h"

namespace longhaul {

// Stacked step-time bars with whiskers, the legend above and the axis below.
std::string bars_html(const ResultCase& one, const StepBars& bars, const CaseVerdict& verdict);

// One panel a traced row; all share both axes.
struct MemoryPanel {
  std::string label;
  MemoryCurve curve;
  std::int64_t limit_bytes = 0;         // 0: not known
  std::optional<double> highest_bytes;  // of all ranks, as the results have it
  Time step;
};
std::string memory_html(const std::vector<MemoryPanel>& panels);

// The timeline of one row. `id` numbers it on the page and finds its data.
std::string timeline_html(const Traced& traced, const TimelineView& view, int id, bool open);
// What the script shows on hover: {"unit_ps", "begin_ps", "keys": [[label, pass]], "rows": [[key, layer, chunk, gap,
// length, ops, busy, ...]]}; gap counts from the end of the mark before; busy is 0 for single ops.
std::string timeline_json(const Traced& traced, const TimelineView& view);

}  // namespace longhaul
