// What device memory holds before a step: parameters rounded to bf16, master weights, zeros, and the rows that ops
// `given` bring from outside.
//
// Parameters are those of validate/cpu/parameters.h, rounded to bf16: master weights hold the rounded number too, so
// that every executor differentiates at the same point. Layout of an optimizer state: lower_elementwise.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "kernels/common/bf16.h"
#include "sim/schedule/schedule.h"
#include "validate/cpu/reference.h"
#include "validate/cpu/resident.h"

namespace longhaul {

// The part of the model's parameters that a resident tensor stands for; nothing for other tensors.
std::optional<UnitRange> resident_range(const Schedule& schedule, std::int32_t rank, const TensorId& tensor);

// Calls `store` with the bytes of every resident tensor of every rank that `wanted` says, unit by unit. Gradients are
// zero. Throws ScheduleError for a resident tensor that is neither parameter, gradient nor optimizer state.
using StoreBytes = std::function<void(std::int32_t rank, const TensorId& tensor, const std::vector<std::byte>& bytes)>;
void load_residents(const Schedule& schedule, const std::vector<std::int32_t>& ranks, std::uint64_t parameter_seed,
                    const StoreBytes& store);

// The model's parameters rounded to bf16: what the reference must start from.
ParameterValues bf16_parameters(const ModelShape& model, std::uint64_t seed);

// Bytes of one whole operand of an op `given`, as validate/cpu has its values, padding zero.
std::vector<std::byte> given_bytes(const Schedule& schedule, const OpInstance& at, const View& view);

}  // namespace longhaul
