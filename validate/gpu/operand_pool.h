// Device memory for the operands of one call after the other: allocated once, cut up anew for each call and filled with
// noise, so that what the call before left (zeros, gradients) does not change what this one draws from the power limit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/common/bf16.h"
#include "kernels/common/device_buffer.h"

namespace longhaul {

class OperandPool {
 public:
  OperandPool(std::size_t bytes, cudaStream_t stream) : stream_(stream), memory_(bytes) {}

  // Everything taken before is given back.
  void clear() { used_ = 0; }
  // `count` elements, 256-byte aligned, filled with noise in stream order. Throws UnsupportedCall where the pool is too
  // small.
  template <class T>
  T* take(std::int64_t count) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "noise is of 16-bit elements");
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  void* take_bytes(std::size_t bytes);

  cudaStream_t stream_;
  DeviceBuffer<std::byte> memory_;
  std::size_t used_ = 0;
  unsigned seed_ = 0;
};

}  // namespace longhaul
