// The memory-bound kernels of kernels/elementwise as calls on pooled operands.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "validate/gpu/calibrate/calibration_call.h"
#include "validate/gpu/operand_pool.h"

namespace longhaul {

// Enqueues one call of call.kernel on call.m tokens of call.n elements (elementwise_kernels() of the plan; heads of 128
// where there are heads). Rows are packed and unpacked in a mixed order, none twice. Throws std::invalid_argument for a
// kernel that is none.
std::function<void()> elementwise_call(const CalibrationCall& call, OperandPool& pool, cudaStream_t stream);

}  // namespace longhaul
