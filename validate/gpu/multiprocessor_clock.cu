#include "kernels/common/check.h"
#include "validate/gpu/global_timer.cuh"
#include "validate/gpu/multiprocessor_clock.h"

namespace longhaul {
namespace {

constexpr int kProbeBlocks = 4;  // for each multiprocessor, so that none is missed

__global__ void probe_kernel(ClockReading* readings, std::uint32_t epoch) {
  unsigned multiprocessor = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  ClockReading& reading = readings[multiprocessor];
  if (atomicMax(&reading.epoch, epoch) >= epoch) return;  // another block of this probe was here
  reading.cycles = static_cast<std::uint64_t>(clock64());
  reading.nanoseconds = device_nanoseconds();
}

int multiprocessors() {
  int device = 0, count = 0;
  LH_CUDA_CHECK(cudaGetDevice(&device));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace

// Multiprocessor numbers (%smid) may leave gaps; they stay below twice the count on every device so far.
MultiprocessorClock::MultiprocessorClock(cudaStream_t stream)
    : blocks_(kProbeBlocks * multiprocessors()),
      before_(2 * static_cast<std::size_t>(multiprocessors())),
      after_(2 * static_cast<std::size_t>(multiprocessors())) {
  for (DeviceBuffer<ClockReading>* readings : {&before_, &after_}) {
    LH_CUDA_CHECK(cudaMemsetAsync(readings->data(), 0, readings->size_bytes(), stream));
    probe(*readings, stream);
  }
}

void MultiprocessorClock::begin(cudaStream_t stream) {
  ++epoch_;
  probe(before_, stream);
}

void MultiprocessorClock::end(cudaStream_t stream) { probe(after_, stream); }

double MultiprocessorClock::megahertz(cudaStream_t stream) const {
  return clock_between(before_.download(stream), after_.download(stream), epoch_);
}

void MultiprocessorClock::probe(DeviceBuffer<ClockReading>& readings, cudaStream_t stream) {
  probe_kernel<<<blocks_, 1, 0, stream>>>(readings.data(), epoch_);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
