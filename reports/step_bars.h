// View data of the stacked step-time bars: one bar a row that has a time, parts in a fixed order, whiskers from the low
// to the high end.
//
// Units: milliseconds. Invariants: segments of a bar touch, start at 0 and end at their sum; parts of no length are
// left out. Ignores rows without a time.
#pragma once

#include <string>
#include <vector>

#include "reports/result_rows.h"

namespace longhaul {

// The parts that have a place and a colour of their own, in the order in which they stack. Parts of other names follow
// in the order of the file, in the colours of kOtherPart.
const std::vector<std::string>& time_parts();

struct BarSegment {
  std::string part;  // key of time_ms
  int colour = 0;    // index into time_parts(), or its size for a part that is not there
  double start_ms = 0;
  double length_ms = 0;
};

struct StepBar {
  int row = 0;  // of the case
  std::vector<BarSegment> segments;
  double step_ms = 0, low_ms = 0, high_ms = 0;
};

struct StepBars {
  std::vector<StepBar> bars;
  std::vector<std::string> parts;  // that occur in any bar, in stack order
  double right_ms = 1;             // the right end of the axis: no bar or whisker goes beyond
  std::vector<double> ticks;       // ms, from 0, none beyond the right end
};

StepBars step_bars(const ResultCase& one);
int part_colour(const std::string& part);

}  // namespace longhaul
