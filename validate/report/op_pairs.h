// Every op of a prediction beside what was measured of it.
//
// Seconds of a kernel: its end less its start, by repeat. Seconds of a transfer between real ranks: the least of its
// members' (the others' kernels wait for the last member); between virtual ranks nothing was measured.
// Invariant: the record has no record_faults (comparison.h).
#pragma once

#include <vector>

#include "validate/device/run_record.h"
#include "validate/report/prediction.h"

namespace longhaul {

struct PairedOp {
  const PredictedOp* predicted = nullptr;
  const MeasuredOp* measured = nullptr;  // null: excluded from the run
  std::vector<double> seconds;           // by repeat; empty: not measured, the model's time is all there is
};

// Seconds of every op of a record, in its order.
std::vector<std::vector<double>> op_seconds(const RunRecord& record);

std::vector<PairedOp> pair_ops(const Prediction& prediction, const RunRecord& record);

}  // namespace longhaul
