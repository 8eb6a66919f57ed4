// How long a run still takes, from what was predicted and what it took so far.
#pragma once

#include <algorithm>

namespace longhaul {

// Seconds. `predicted_seconds` of the whole run, `predicted_left_seconds` of what is to do: as predicted until a
// twentieth is done, then scaled by what that took against its prediction.
inline double time_left(double predicted_seconds, double predicted_left_seconds, double passed_seconds) {
  const double done = predicted_seconds - predicted_left_seconds;
  if (done <= 0.05 * predicted_seconds) return std::max(0.0, predicted_left_seconds);
  return std::max(0.0, predicted_left_seconds) * passed_seconds / done;
}

}  // namespace longhaul
