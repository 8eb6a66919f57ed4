// Times of one GPU call, as nvbench takes them: each sample alone with an empty L2 (cold), and many back to back
// (batch).
//
// The stream is held by a waiting kernel until a whole sample is enqueued, so that the host's launch cost is not in it.
// Cold samples go on until their standard deviation is below 0.5 % of their mean (at least 10) or the time is over.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "kernels/common/bf16.h"
#include "kernels/common/device_buffer.h"
#include "kernels/common/stream.h"

namespace longhaul {

struct ColdTimes {
  double median_ms = 0, min_ms = 0, max_ms = 0;
  std::size_t samples = 0;
  double batch_ms = 0;  // a call
};

class ColdTimer {
 public:
  // `seconds` bounds the cold samples of one call; the batch takes about a tenth of it more.
  explicit ColdTimer(double seconds);
  ~ColdTimer();
  ColdTimer(const ColdTimer&) = delete;
  ColdTimer& operator=(const ColdTimer&) = delete;

  cudaStream_t stream() const { return stream_.get(); }
  // `enqueue` puts the call on stream(); it must not wait for the stream once it has run before.
  ColdTimes measure(const std::function<void()>& enqueue);

 private:
  float sample(const std::function<void()>& enqueue, int calls, bool cold);
  void hold();
  void release();

  double seconds_;
  Stream stream_;
  Event start_, end_;
  DeviceBuffer<std::byte> flush_;
  int* gate_ = nullptr;  // pinned host memory that the device sees
};

// Enqueues data[i] = a number of [-1, 1) that depends on (seed, i) only, rounded to bf16.
void fill_with_noise(Bf16* data, std::size_t count, unsigned seed, cudaStream_t stream);

}  // namespace longhaul
