// The class of a measured call and what the model needs to know of it.
#pragma once

#include <optional>
#include <string>

#include "sim/cost/kernel_features.h"
#include "validate/fit/kernel_rows.h"

namespace longhaul {

struct RowClass {
  std::string name;  // "gemm", "attention/cudnn/forward/dense", "elementwise/rope", ...
  KernelCall call;
};

// Of a row that read_kernel_rows passed; not of a launch. Nothing for a list that is no one call of its library.
std::optional<RowClass> row_class(const KernelRow& row, int multiprocessors);

}  // namespace longhaul
