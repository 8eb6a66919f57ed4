// Reads the H200 tables (validate/data/h200, h200x2) into rows of kernel calls.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"
#include "validate/fit/kernel_rows.h"

namespace longhaul {

// The rows that the H200's calibration is fitted to: calibrate.csv of `directory` and, of attention_calls.csv, lists of
// other masks by our own kernels.
Expected<std::vector<KernelRow>> read_h200_rows(const std::string& directory);

// Rows of another day and other methods, which no fit of a rate sees: gemm_bf16.csv, attention.csv (cuDNN through
// PyTorch, whose host time is in the short ones), the lists with key offsets of cudnn_varlen.csv (cuDNN 9.14; its whole
// documents ran under a mask that the wrapper no longer asks for), cuDNN's rows of attention_calls.csv, copy.csv. All
// but attention_calls.csv were timed by events around the call.
Expected<std::vector<KernelRow>> read_h200_aside(const std::string& directory);

// Files that the calibration stands on: those rows, and the tables that say what events add to a call.
const std::vector<std::string>& h200_row_files();

}  // namespace longhaul
