#include <cuda_bf16.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "kernels/common/check.h"
#include "validate/gpu/cold_timer.h"
#include "validate/gpu/loop_samples.h"

namespace longhaul {
namespace {

constexpr std::size_t kFewestSamples = 10;
constexpr double kQuiet = 0.005;
constexpr int kMostBatch = 64;
// A held stream goes on by itself after this many nanoseconds, so that a fault of the host cannot hang the device.
constexpr unsigned long long kPatience = 2'000'000'000ULL;

__global__ void hold_kernel(const volatile int* gate) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  now = start;
  while (*gate == 0 && now - start < kPatience) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
}

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

int l2_bytes() {
  int device = 0, bytes = 0;
  LH_CUDA_CHECK(cudaGetDevice(&device));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
  return bytes;
}

bool quiet(const std::vector<double>& samples) {
  if (samples.size() < kFewestSamples) return false;
  double mean = 0, square = 0;
  for (const double x : samples) mean += x / static_cast<double>(samples.size());
  for (const double x : samples) square += (x - mean) * (x - mean);
  return std::sqrt(square / static_cast<double>(samples.size() - 1)) < kQuiet * mean;
}

}  // namespace

ColdTimer::ColdTimer(double seconds) : seconds_(seconds), flush_(2 * static_cast<std::size_t>(l2_bytes())) {
  void* gate = nullptr;
  LH_CUDA_CHECK(cudaHostAlloc(&gate, sizeof(int), cudaHostAllocMapped));
  gate_ = static_cast<int*>(gate);
}

ColdTimer::~ColdTimer() { cudaFreeHost(gate_); }

void ColdTimer::hold() {
  *static_cast<volatile int*>(gate_) = 0;
  hold_kernel<<<1, 1, 0, stream_.get()>>>(gate_);
  LH_CUDA_CHECK(cudaGetLastError());
}

void ColdTimer::release() { *static_cast<volatile int*>(gate_) = 1; }

float ColdTimer::sample(const std::function<void()>& enqueue, int calls, bool cold) {
  if (cold) LH_CUDA_CHECK(cudaMemsetAsync(flush_.data(), 0, flush_.size_bytes(), stream_.get()));
  hold();
  start_.record(stream_.get());
  for (int i = 0; i < calls; ++i) enqueue();
  end_.record(stream_.get());
  release();
  end_.synchronize();
  return end_.milliseconds_since(start_) / static_cast<float>(calls);
}

ColdTimes ColdTimer::measure(const std::function<void()>& enqueue) {
  for (int i = 0; i < 2; ++i) enqueue();  // plans, scratch and modules are made here
  stream_.synchronize();
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> samples;
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  while (samples.size() < kFewestSamples || (!quiet(samples) && seconds() < seconds_)) {
    samples.push_back(sample(enqueue, 1, true));
    if (seconds() > 4 * seconds_ && samples.size() >= 3) break;  // a call of many milliseconds
  }
  const SampleSummary summary = summarize(samples);
  const double calls = std::clamp(0.1 * seconds_ / (1e-3 * summary.median), 2.0, static_cast<double>(kMostBatch));
  return {summary.median, summary.min, summary.max, summary.count, sample(enqueue, static_cast<int>(calls), false)};
}

void fill_with_noise(Bf16* data, std::size_t count, unsigned seed, cudaStream_t stream) {
  if (count == 0) return;
  noise_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<__nv_bfloat16*>(data), count, seed);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
