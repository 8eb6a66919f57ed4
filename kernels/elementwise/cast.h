// Casts between fp32 and bf16 in device memory (the schedule's `cast`: master weights to bf16 parameters, bf16
// gradients to fp32). Memory-bound: 6 bytes an element.
//
// Versions, on an H200 (2026-11-29): one element a thread at a time, to bf16 2.8 TB/s; then eight where both pointers
// are 16-byte aligned, to bf16 4.2 TB/s, to fp32 2.6 (a thread's two stores were not its neighbour's); then four to
// fp32 (this), 4.0 TB/s.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/bf16.h"

namespace longhaul {

// Enqueues to[i] = from[i] for i < count, rounded to nearest even. Device pointers, naturally aligned, not overlapping.
// A count of 0 launches nothing.
void cast_to_bf16(const float* from, Bf16* to, std::int64_t count, cudaStream_t stream);
// The same the other way: exact.
void cast_to_fp32(const Bf16* from, float* to, std::int64_t count, cudaStream_t stream);

}  // namespace longhaul
