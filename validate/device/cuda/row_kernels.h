// Kernels of the device executor that are not in kernels/: rows copied, filled, added, looked up; a gate.
//
// Rows as in validate/device/kernel_call.h, in device memory; bf16 or fp32, fp32 arithmetic, one rounding.
// Memory-bound: eight elements a thread where columns, strides and addresses are multiples of eight elements and 16
// bytes, else one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "kernels/common/bf16.h"

namespace longhaul {

struct DeviceRows {
  void* data = nullptr;
  const std::int32_t* index = nullptr;
  bool bf16 = true;
  std::int64_t rows = 0, columns = 0, stride = 0;
};

void copy_rows(const DeviceRows& from, const DeviceRows& to, bool accumulate, cudaStream_t stream);
void fill_rows(const DeviceRows& to, float value, cudaStream_t stream);
// At most 64 sources (std::invalid_argument); `to` may be one of them.
void sum_rows(const std::vector<DeviceRows>& from, const DeviceRows& to, bool accumulate, cudaStream_t stream);
// Numbers of (-1/64, 1/64), by seed and place.
void noise_rows(const DeviceRows& to, std::uint32_t seed, cudaStream_t stream);

// r[i] = 1 / sqrt(mean of row i squared + epsilon); tight rows, width a multiple of 8.
void rms_scale(const Bf16* x, float* r, std::int64_t tokens, std::int64_t width, float epsilon, cudaStream_t stream);

// EmbeddingBackwardCall: sums in listed order, so that the bits repeat.
struct EmbeddingGradient {
  std::int64_t count = 0, width = 0;
  const Bf16* rows = nullptr;
  Bf16* table = nullptr;
  const std::int32_t *ids = nullptr, *first = nullptr, *listed = nullptr;
  bool accumulate = false;
};
void embedding_gradient(const EmbeddingGradient& gradient, cudaStream_t stream);

// Holds the stream until *gate (host memory that the device sees) is not 0, or for two seconds at most, so that a host
// that never opens it cannot hang the device.
void hold_at_gate(const int* gate, cudaStream_t stream);

// A kernel of one thread that does nothing for so long.
void delay(std::int64_t nanoseconds, cudaStream_t stream);

}  // namespace longhaul
