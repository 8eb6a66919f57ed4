// Owner of an array in device memory. Movable, not copyable.
//
// Fresh memory holds whatever was there before; `poison` makes reads of unwritten elements show, since all bits set are
// a NaN in every floating-point type. Copies are ordered on the given stream; host memory here is pageable, so a copy
// returns when the host array may be reused.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "kernels/common/check.h"

namespace longhaul {

template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // `size` elements on the current device; 0 allocates nothing.
  explicit DeviceBuffer(std::size_t size) : size_(size) {
    if (size == 0) return;
    void* data = nullptr;
    LH_CUDA_CHECK(cudaMalloc(&data, size_bytes()));
    data_.reset(static_cast<T*>(data));
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t size_bytes() const { return size_ * sizeof(T); }

  // Sets every bit.
  void poison(cudaStream_t stream) {
    if (size_ > 0) LH_CUDA_CHECK(cudaMemsetAsync(data(), 0xFF, size_bytes(), stream));
  }
  // As many elements as the buffer has; throws std::invalid_argument otherwise.
  void upload(std::span<const T> host, cudaStream_t stream) {
    if (host.size() != size_) throw std::invalid_argument("DeviceBuffer::upload: sizes differ");
    if (size_ > 0) LH_CUDA_CHECK(cudaMemcpyAsync(data(), host.data(), size_bytes(), cudaMemcpyHostToDevice, stream));
  }
  // Waits for the stream's work so far.
  std::vector<T> download(cudaStream_t stream) const {
    std::vector<T> host(size_);
    if (size_ > 0) LH_CUDA_CHECK(cudaMemcpyAsync(host.data(), data(), size_bytes(), cudaMemcpyDeviceToHost, stream));
    LH_CUDA_CHECK(cudaStreamSynchronize(stream));
    return host;
  }

 private:
  struct Free {
    void operator()(T* data) const { cudaFree(data); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace longhaul
