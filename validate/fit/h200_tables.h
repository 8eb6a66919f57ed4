// Reads the H200 tables (validate/data/h200) into calls with measured times.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/cost/calibration.h"

namespace longhaul {

struct MeasuredCall {
  std::string group;  // how the report groups it: "gemm forward", "attention forward, packed", ...
  KernelCall call;
  double seconds = 0;  // median, timed alone
};

// All kernel rows of gemm_bf16, attention (impl cudnn), cudnn_varlen, elementwise and copy. The cuDNN rows of attention
// are the truth, not those of FlashAttention-2: cuDNN is what the packed table was measured with, what `kernels/`
// wraps, and on this device twice as fast.
Expected<std::vector<MeasuredCall>> read_measured_calls(const std::string& directory, int multiprocessors);

}  // namespace longhaul
