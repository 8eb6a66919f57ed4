#include "reports/step_bars.h"

#include <algorithm>

#include "reports/format.h"

namespace longhaul {
namespace {

// The row's parts in stack order: known ones first.
NamedValues in_stack_order(const NamedValues& parts) {
  NamedValues ordered = parts;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return part_colour(a.first) < part_colour(b.first); });
  return ordered;
}

}  // namespace

const std::vector<std::string>& time_parts() {
  // Work first, then waiting; work in the order in which it happens. Names as sim/analysis/breakdown.h writes them.
  static const std::vector<std::string> kParts = {
      "compute", "recompute", "optimizer", "contention", "exposed_communication",
      "bubble",  "imbalance", "launch",    "tail"};
  return kParts;
}

int part_colour(const std::string& part) {
  const auto& parts = time_parts();
  return static_cast<int>(std::find(parts.begin(), parts.end(), part) - parts.begin());
}

StepBars step_bars(const ResultCase& one) {
  StepBars view;
  NamedValues seen;
  double largest = 0;
  for (std::size_t i = 0; i < one.rows.size(); ++i) {
    const ResultRow& row = one.rows[i];
    if (!row.timed()) continue;
    StepBar bar{static_cast<int>(i), {}, *row.step_ms, row.low(), row.high()};
    double start = 0;
    for (const auto& [part, length] : in_stack_order(row.time_ms)) {
      if (length <= 0) continue;
      bar.segments.push_back({part, part_colour(part), start, length});
      start += length;
      seen.emplace_back(part, 0);
    }
    largest = std::max({largest, bar.step_ms, bar.high_ms});
    view.bars.push_back(std::move(bar));
  }
  for (const auto& [part, unused] : in_stack_order(seen)) {
    if (std::find(view.parts.begin(), view.parts.end(), part) == view.parts.end()) view.parts.push_back(part);
  }
  view.right_ms = largest > 0 ? largest * 1.01 : 1;  // so that the last whisker is seen whole
  view.ticks = axis_ticks(largest, 6);
  while (view.ticks.back() > view.right_ms) view.ticks.pop_back();
  return view;
}

}  // namespace longhaul
