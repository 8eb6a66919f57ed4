// The rows of a calibration: one CSV line a measured call, in the columns that fits read (validate/fit/kernel_rows.h)
// and what was seen beside the times.
#pragma once

#include <string>
#include <vector>

#include "validate/gpu/calibrate/bench.h"
#include "validate/gpu/calibrate/measuring_loop.h"

namespace longhaul {

// Columns: those of call_columns(), then impl (elementwise: the kernel), ms_median, ms_min, ms_max, ms_mean,
// deviation_percent (of the samples), samples, dropped (throttled samples), clock_mhz, batch_ms, batch_clock_mhz, stop.
// Launch rows: ms_* are host time of a launch, batch_ms what the device takes for one of many empty kernels.
ResultFormat calibration_format(const Bench& bench, const LoopLimits& limits);

std::vector<std::string> calibration_row(const CalibrationCall& call, const std::string& implementation,
                                         const Measurement& measured);

}  // namespace longhaul
