// What `longhaul calibrate` prints: its plan, and the errors of what it fitted.
#pragma once

#include <string>
#include <vector>

#include "sim/cli/command.h"
#include "sim/cost/estimate.h"
#include "validate/gpu/calibrate/calibration_call.h"
#include "validate/gpu/calibrate/fit_rows.h"

namespace longhaul {

// Table: rows and predicted seconds a class. CSV: every call in order, as rows of `cost` with their predicted time
// (predicted_ms) and the seconds that measuring it takes (row_seconds). JSON: both.
std::string plan_text(const std::vector<CalibrationCall>& plan, const KernelModel& model, Format format);

// Rows and held-out errors a class, in per cent in the table and as shares in CSV and JSON.
std::string errors_text(const std::vector<ClassErrors>& classes, Format format);

}  // namespace longhaul
