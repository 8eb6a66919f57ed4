// The clock of the multiprocessors over a span of a stream (calibrate/clock_probe.h): the device's side.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/device_buffer.h"
#include "validate/gpu/calibrate/clock_probe.h"

namespace longhaul {

// Two probes at a time, on the device that was current when it was made. Throws CudaError.
class MultiprocessorClock {
 public:
  // Runs each of its kernels once: one that is loaded while a stream is held would wait for it to go on.
  explicit MultiprocessorClock(cudaStream_t stream);

  // Enqueue: where the span begins and ends. A begin forgets the span before.
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  // Megahertz, as clock_between says it; both probes have been reached. Waits for `stream`.
  double megahertz(cudaStream_t stream) const;

 private:
  void probe(DeviceBuffer<ClockReading>& readings, cudaStream_t stream);

  int blocks_ = 0;
  std::uint32_t epoch_ = 0;
  DeviceBuffer<ClockReading> before_, after_;
};

}  // namespace longhaul
