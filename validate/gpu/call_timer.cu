#include <cuda_bf16.h>

#include <chrono>
#include <thread>
#include <type_traits>

#include "kernels/common/check.h"
#include "validate/gpu/calibrate/bench.h"
#include "validate/gpu/call_timer.h"
#include "validate/gpu/global_timer.cuh"

namespace longhaul {
namespace {

// A held stream goes on by itself after this many nanoseconds, so that a fault of the host cannot hang the device.
constexpr unsigned long long kPatience = 2'000'000'000ULL;
constexpr int kTimedLaunches = 100;

// gate[0]: go on; gate[1]: nobody said so in time.
__global__ void hold_kernel(volatile int* gate) {
  const unsigned long long start = device_nanoseconds();
  while (gate[0] == 0) {
    if (device_nanoseconds() - start < kPatience) continue;
    gate[1] = 1;
    return;
  }
}

__global__ void empty_kernel() {}

__global__ void noise_kernel(__nv_bfloat16* data, std::size_t count, unsigned seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    unsigned long long x = i + 0x9E3779B97F4A7C15ULL * (seed + 1ULL);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    const auto bits = static_cast<unsigned>((x ^ (x >> 31)) >> 40);  // 24 bits
    data[i] = __float2bfloat16_rn(static_cast<float>(bits) * 0x1p-23F - 1.0F);
  }
}

int attribute(cudaDeviceAttr what) {
  int device = 0, value = 0;
  LH_CUDA_CHECK(cudaGetDevice(&device));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&value, what, device));
  return value;
}

template <class Call>
auto with_device_faults(const Call& call) {
  try {
    return call();
  } catch (const CudaError& error) {
    throw BenchFault(error.what());
  }
}

}  // namespace

CallTimer::CallTimer()
    : flush_(2 * static_cast<std::size_t>(attribute(cudaDevAttrL2CacheSize))), clock_(stream_.get()) {
  void* gate = nullptr;
  LH_CUDA_CHECK(cudaHostAlloc(&gate, 2 * sizeof(int), cudaHostAllocMapped));
  gate_ = static_cast<int*>(gate);
  // Every kernel runs once here: one that is loaded while the stream is held would wait for it to go on.
  LH_CUDA_CHECK(cudaMemsetAsync(flush_.data(), 0, flush_.size_bytes(), stream_.get()));
  enqueue_empty();
  hold();
  release();
  start_.record(stream_.get());
  end_.record(stream_.get());
  stream_.synchronize();
}

CallTimer::~CallTimer() { cudaFreeHost(gate_); }

void CallTimer::hold() {
  volatile int* gate = gate_;
  gate[0] = 0;
  gate[1] = 0;
  hold_kernel<<<1, 1, 0, stream_.get()>>>(gate_);
  LH_CUDA_CHECK(cudaGetLastError());
}

void CallTimer::release() { *static_cast<volatile int*>(gate_) = 1; }

Sample CallTimer::sample(const std::function<void()>& enqueue, int calls, bool cold) {
  if (cold) LH_CUDA_CHECK(cudaMemsetAsync(flush_.data(), 0, flush_.size_bytes(), stream_.get()));
  hold();
  clock_.begin(stream_.get());
  start_.record(stream_.get());
  try {
    for (int i = 0; i < calls; ++i) enqueue();
  } catch (...) {
    release();  // the stream is not left waiting
    throw;
  }
  end_.record(stream_.get());
  clock_.end(stream_.get());
  release();
  end_.synchronize();
  if (static_cast<volatile int*>(gate_)[1] != 0) {
    throw_cuda_error(__FILE__, __LINE__, "hold_kernel", "the host took over 2 s to enqueue one sample");
  }
  const float milliseconds = end_.milliseconds_since(start_) / static_cast<float>(calls);
  return {milliseconds, clock_.megahertz(stream_.get())};
}

void CallTimer::enqueue_empty() {
  empty_kernel<<<1, 1, 0, stream_.get()>>>();
  LH_CUDA_CHECK(cudaGetLastError());
}

// Few enough that the queue of the stream never fills.
double CallTimer::launch_ms() {
  stream_.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimedLaunches; ++i) enqueue_empty();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  stream_.synchronize();
  return took.count() / kTimedLaunches;
}

Sample CudaStopwatch::cold() {
  return with_device_faults([&] { return timer_.cold(enqueue_); });
}

Sample CudaStopwatch::batch(int calls) {
  return with_device_faults([&] { return timer_.batch(enqueue_, calls); });
}

double CudaStopwatch::seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void CudaStopwatch::rest(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

Sample LaunchStopwatch::cold() {
  return with_device_faults([&] { return Sample{timer_.launch_ms(), 0}; });
}

void fill_with_noise(Bf16* data, std::size_t count, unsigned seed, cudaStream_t stream) {
  if (count == 0) return;
  noise_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<__nv_bfloat16*>(data), count, seed);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
