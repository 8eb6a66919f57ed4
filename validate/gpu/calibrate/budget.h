// How long measuring takes, before it starts: for the progress bar's estimate and for the promise of eight minutes.
#pragma once

#include "sim/cost/estimate.h"
#include "validate/gpu/calibrate/calibration_call.h"
#include "validate/gpu/calibrate/measuring_loop.h"

namespace longhaul {

// Seconds that the call itself takes on the device, by the cost model; diffusion and every kernel that the model does
// not know by an estimate on the safe side.
double predicted_call_seconds(const CalibrationCall& call, const KernelModel& model);

// Seconds of the whole row: preparing (cuDNN builds a plan a shape: 0.05 to 1.1 s, measured 2026-11-29; charged with
// kPlanSeconds), two warm-up calls, cold samples with their L2 flush and host time, batches.
inline constexpr double kPlanSeconds = 0.5;
double predicted_row_seconds(const CalibrationCall& call, double call_seconds, const LoopLimits& limits);

}  // namespace longhaul
