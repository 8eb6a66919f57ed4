// Double-precision work of references on one GPU (validate/device/double_math.h): large products through cuBLASLt,
// attention of sampled rows by row_attention.h. Operands go there and results come back, from and to host memory.
//
// What the GPU has no memory left for, the cores compute.
#pragma once

#include <memory>

#include "validate/device/double_math.h"

namespace longhaul {

// `threads`: of the host, for packing and for what stays here. Every call uses GPU `index` and waits for it. CudaError.
std::unique_ptr<DoubleMath> make_cuda_math(int index, int threads);

}  // namespace longhaul
