// The lists that plan.cpp puts together, one a class, in an order that covers evenly.
#pragma once

#include <vector>

#include "validate/gpu/calibrate/calibration_call.h"

namespace longhaul {

std::vector<CalibrationCall> gemm_calls();
std::vector<CalibrationCall> attention_calls();
std::vector<CalibrationCall> varlen_calls();
std::vector<CalibrationCall> diffusion_calls();
std::vector<CalibrationCall> elementwise_calls();
std::vector<CalibrationCall> copy_calls();
std::vector<CalibrationCall> launch_calls();

// The item of a list of `size` at `place` of [0, 1).
std::size_t item_at(double place, std::size_t size);
// least x (most / least)^place, rounded to a multiple of `step`, at least `step`.
std::int64_t log_between(double place, double least, double most, std::int64_t step);

}  // namespace longhaul
