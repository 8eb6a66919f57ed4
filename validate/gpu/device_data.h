// Filling and checking buffers on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "kernels/common/bf16.h"
#include "validate/gpu/collective.h"

namespace longhaul {

// Enqueues data[i] = pattern_value(rank, i) for i < count.
void fill_pattern(float* data, std::int64_t count, int rank, cudaStream_t stream);

// Elements of `received` that are not what `runs` says, NaN included, on a job of `ranks` ranks. Waits for the stream.
std::int64_t count_mismatches(const float* received, const std::vector<ReceivedRun>& runs, int ranks,
                              cudaStream_t stream);

// Enqueues data[i] = a number of [-1, 1) that depends on (seed, i) only, rounded to bf16 or not: operands whose
// products draw the power that real ones do.
void fill_random(Bf16* data, std::int64_t count, std::uint32_t seed, cudaStream_t stream);
void fill_random(float* data, std::int64_t count, std::uint32_t seed, cudaStream_t stream);

}  // namespace longhaul
