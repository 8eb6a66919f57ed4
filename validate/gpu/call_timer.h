// Samples of one GPU call on the current device: the CUDA side of Stopwatch (validate/gpu/calibrate/stopwatch.h).
//
// The stream is held by a waiting kernel until a whole sample is enqueued, so that the host's launch cost is not in it.
// Cold samples follow an overwritten L2. Around the timed calls, outside of their events, probes read the clock.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/common/bf16.h"
#include "kernels/common/device_buffer.h"
#include "kernels/common/stream.h"
#include "validate/gpu/calibrate/stopwatch.h"
#include "validate/gpu/multiprocessor_clock.h"

namespace longhaul {

class CallTimer {
 public:
  CallTimer();
  ~CallTimer();
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  cudaStream_t stream() const { return stream_.get(); }
  // `enqueue` puts one call on stream() and does not wait for it. Throws CudaError, also where enqueueing took longer
  // than the stream can be held (2 s).
  Sample cold(const std::function<void()>& enqueue) { return sample(enqueue, 1, true); }
  Sample batch(const std::function<void()>& enqueue, int calls) { return sample(enqueue, calls, false); }
  // Host time of a launch of an empty kernel, and enqueueing one.
  double launch_ms();
  void enqueue_empty();

 private:
  Sample sample(const std::function<void()>& enqueue, int calls, bool cold);
  void hold();
  void release();

  Stream stream_;
  CudaEvent start_, end_;
  DeviceBuffer<std::byte> flush_;
  MultiprocessorClock clock_;
  int* gate_ = nullptr;  // pinned host memory that the device sees: go on; gave up
};

// One call on a timer. CudaError becomes BenchFault.
class CudaStopwatch : public Stopwatch {
 public:
  CudaStopwatch(CallTimer& timer, std::function<void()> enqueue) : timer_(timer), enqueue_(std::move(enqueue)) {}

  Sample cold() override;
  Sample batch(int calls) override;
  double seconds() override;
  void rest(double seconds) override;

 protected:
  CallTimer& timer_;

 private:
  std::function<void()> enqueue_;
};

// Samples are host time of a launch; a batch is what the device takes for one of many empty kernels.
class LaunchStopwatch : public CudaStopwatch {
 public:
  explicit LaunchStopwatch(CallTimer& timer) : CudaStopwatch(timer, [&timer] { timer.enqueue_empty(); }) {}
  Sample cold() override;
};

// Enqueues data[i] = a number of [-1, 1) that depends on (seed, i) only, rounded to bf16. Read as fp32 the same bytes
// are numbers of (-1, 1) too.
void fill_with_noise(Bf16* data, std::size_t count, unsigned seed, cudaStream_t stream);

}  // namespace longhaul
