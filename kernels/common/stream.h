// Owners of a CUDA stream and of a CUDA event on the current device. Movable, not copyable.
//
// A destructor cannot throw: what the runtime says there is dropped, since the failing call before it has already
// thrown.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/common/check.h"

namespace longhaul {

// Marks a place in a stream, with a time stamp.
class CudaEvent {
 public:
  CudaEvent() {
    cudaEvent_t event = nullptr;
    LH_CUDA_CHECK(cudaEventCreate(&event));
    event_.reset(event);
  }

  cudaEvent_t get() const { return event_.get(); }
  void record(cudaStream_t stream) { LH_CUDA_CHECK(cudaEventRecord(get(), stream)); }
  // Blocks the host until the work before the last `record` is done.
  void synchronize() const { LH_CUDA_CHECK(cudaEventSynchronize(get())); }
  // Milliseconds from `start` to this event, both recorded and reached; resolution about half a microsecond.
  float milliseconds_since(const CudaEvent& start) const {
    float milliseconds = 0;
    LH_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start.get(), get()));
    return milliseconds;
  }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

// A stream that does not wait for the default stream.
class Stream {
 public:
  // Blocks of a more urgent stream go first where a multiprocessor becomes free; running ones are not interrupted.
  enum class Priority { kNormal, kHigh };

  explicit Stream(Priority priority = Priority::kNormal) {
    int least = 0, greatest = 0;
    LH_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream = nullptr;
    LH_CUDA_CHECK(
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority == Priority::kHigh ? greatest : least));
    stream_.reset(stream);
  }

  cudaStream_t get() const { return stream_.get(); }
  // Blocks the host until all work of the stream is done; faults of that work surface here.
  void synchronize() const { LH_CUDA_CHECK(cudaStreamSynchronize(get())); }
  // Work enqueued from now on starts after `event` is reached.
  void wait(const CudaEvent& event) { LH_CUDA_CHECK(cudaStreamWaitEvent(get(), event.get(), 0)); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

}  // namespace longhaul
