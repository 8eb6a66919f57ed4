// Chrome trace JSON of a predicted and a measured timeline, one above the other.
//
// One process a rank; a stream has two threads, "compute: predicted" and below it "compute: measured" (virtual ranks:
// "composed"), so that the same op stands in two rows at the same scale. Times as in chrome_trace.h; `args` of a
// measured op hold the other's duration and the error (predicted / measured - 1). A stream of transfers that were not
// measured says "model".
#pragma once

#include <ostream>
#include <string>

#include "validate/report/double_timeline.h"

namespace longhaul {

struct DoubleTraceHead {
  std::string study_case, strategy;
  bool composed = false;  // virtual ranks
};

void write_double_trace(std::ostream& out, const DoubleTraceHead& head, const DoubleTimeline& timeline);

}  // namespace longhaul
