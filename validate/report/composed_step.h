// The step that measured kernels make when the model does the communication: what virtual ranks can say of a step.
//
// The simulated-time executor runs the schedule with measured medians in place of predicted kernel times; transfers,
// overlap slow-down and launches stay the model's. Kernels of equal shape share one time (the median over ranks, layers
// and repeats), because the executor asks once a shape. Ops that were not measured keep their prediction and are
// counted.
#pragma once

#include <cstdint>

#include "sim/study/setup.h"
#include "validate/device/run_record.h"
#include "validate/report/prediction.h"

namespace longhaul {

struct ComposedStep {
  Totals totals;
  Totals low, high;  // with every kernel at the low and the high end of the interval of its median
  RecordedTimeline timeline;
  std::int64_t modelled_kernels = 0;  // launches that kept their prediction
};

ComposedStep compose_step(const CaseSetup& setup, const Prediction& prediction, const RunRecord& record,
                          double confidence);

}  // namespace longhaul
