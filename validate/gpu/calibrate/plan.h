// What `longhaul calibrate` measures, and in which order: a fixed list, the same on every machine. No CUDA.
//
// Each class is a list in an order that covers its shapes evenly wherever it is cut off (call_order.h), and the classes
// progress alike, so that an interrupted run is a thinner calibration, not a lopsided one. `quick` keeps the first
// kQuickCalls of each class. Sizes are those of transformers (linear layers of Llama 3, Qwen 2.5, Llama 2 and GPT
// shapes, slices of tensor parallelism) and others between them, so that a fit meets no grid.
#pragma once

#include <cstdint>
#include <vector>

#include "validate/gpu/calibrate/calibration_call.h"

namespace longhaul {

inline constexpr std::size_t kQuickCalls = 12;

// The calls of one class, in order; none for overlap and collectives, which are tables of their own.
std::vector<CalibrationCall> calls_of_class(CallClass call_class);

// The calls of `classes`, merged.
std::vector<CalibrationCall> calibration_plan(const std::vector<CallClass>& classes, bool quick);

// Device memory that the operands of the call take, scratch of the libraries aside.
std::int64_t operand_bytes(const CalibrationCall& call);

// Bytes that a kernel of kernels/elementwise reads plus writes, each once; `kernel` is one of elementwise_kernels().
std::int64_t elementwise_bytes(const std::string& kernel, std::int64_t tokens, std::int64_t width);
const std::vector<std::string>& elementwise_kernels();

}  // namespace longhaul
