// Reads the H200 tables (validate/data/h200, h200x2) into rows of kernel calls.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"
#include "validate/fit/kernel_rows.h"

namespace longhaul {

// The rows that the H200's calibration is fitted to: gemm_bf16.csv, attention_calls.csv, elementwise.csv of
// `directory`x2 (our own kernels), copy.csv, and of cudnn_varlen.csv (cuDNN 9.14) the lists with key offsets, which no
// later table holds. Not fitted: attention.csv and elementwise.csv of `directory` (through PyTorch, whose host time is
// in them), attention_torch.csv, and the lists of whole documents of cudnn_varlen.csv (asked for under the bottom-right
// mask, which the wrapper no longer does).
Expected<std::vector<KernelRow>> read_h200_rows(const std::string& directory);
// Their files, relative to the repository, in that order.
const std::vector<std::string>& h200_row_files();

// Rows of tables that no fit sees: cuDNN's of attention.csv (9.19 through PyTorch).
Expected<std::vector<KernelRow>> read_h200_aside(const std::string& directory);

}  // namespace longhaul
