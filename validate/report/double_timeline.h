// The predicted and the measured timeline of a run, op beside op, for a trace that shows one above the other.
//
// Real ranks: the measured times of the repeat whose step is the median one. Virtual ranks: the composed step
// (composed_step.h), in which transfers are the model's. Units: Time from the start of the step. Ops that were not
// measured have no measured times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "validate/report/composed_step.h"

namespace longhaul {

struct DoubleOp {
  std::int32_t rank = 0;
  StreamId stream = kComputeStream;
  std::string label, kind, pass, shape;
  std::int32_t chunk = 0;
  std::int16_t layer = 0;
  std::pair<Time, Time> predicted;                // start, end
  std::optional<std::pair<Time, Time>> measured;  // start, end
  bool modelled = false;                          // what stands as measured is the model's
};

struct DoubleTimeline {
  std::vector<std::string> streams;
  std::vector<DoubleOp> ops;  // by rank, then position
};

// `composed`: null for real ranks.
DoubleTimeline double_timeline(const Prediction& prediction, const RunRecord& record, const ComposedStep* composed);

}  // namespace longhaul
