// What two loops of calls that ran beside each other say. Needs no CUDA.
//
// Each loop is calls back to back on its stream; a call is known by when it started and ended on a common clock, in
// milliseconds. Only calls that lie wholly within the time in which both loops ran count: the others had no neighbour
// for a while.
#pragma once

#include <cstddef>
#include <vector>

namespace longhaul {

struct CallSpan {
  double start_ms = 0, end_ms = 0;
};

// `spans` in order of time, those that count; `from_ms` and `to_ms` bound the time in which every loop ran.
std::vector<double> durations_between(const std::vector<CallSpan>& spans, double from_ms, double to_ms);

// From where on, and up to where, both loops ran; empty loops have no common time (from > to).
CallSpan common_time(const std::vector<CallSpan>& a, const std::vector<CallSpan>& b);

struct SampleSummary {
  std::size_t count = 0;
  double median = 0, min = 0, max = 0, mean = 0;
};

// Of at least one sample (LH_ASSERT); the median of an even number is the mean of the middle two.
SampleSummary summarize(std::vector<double> samples);

}  // namespace longhaul
