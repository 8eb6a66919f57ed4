#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/device_buffer.h"
#include "validate/gpu/device_data.h"
#include "validate/gpu/pattern.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 8192;

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks));
}

__device__ std::int64_t first_index() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::int64_t index_step() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

__global__ void fill_pattern_kernel(float* __restrict__ data, std::int64_t count, int rank) {
  for (std::int64_t i = first_index(); i < count; i += index_step()) data[i] = pattern_value(rank, i);
}

__global__ void count_mismatches_kernel(const float* __restrict__ received, ReceivedRun run, int ranks,
                                        unsigned long long* __restrict__ wrong) {
  unsigned long long mine = 0;
  for (std::int64_t i = first_index(); i < run.count; i += index_step()) {
    const float want = pattern_expected(run.source, ranks, run.source_offset + i);
    if (!(received[run.offset + i] == want)) ++mine;
  }
  if (mine > 0) atomicAdd(wrong, mine);
}

// A full-period mix of 32 bits (Wellons' lowbias32): neighbouring indices give unrelated numbers.
__device__ float random_value(std::uint32_t seed, std::int64_t index) {
  auto x = static_cast<std::uint32_t>(index) ^ (seed * 0x9E3779B9U) ^ static_cast<std::uint32_t>(index >> 32);
  x = (x ^ (x >> 16)) * 0x7FEB352DU;
  x = (x ^ (x >> 15)) * 0x846CA68BU;
  x ^= x >> 16;
  return static_cast<float>(x) * 0x1p-31F - 1.0F;
}

__device__ void store(float value, float& to) { to = value; }
__device__ void store(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

template <class T>
__global__ void fill_random_kernel(T* __restrict__ data, std::int64_t count, std::uint32_t seed) {
  for (std::int64_t i = first_index(); i < count; i += index_step()) store(random_value(seed, i), data[i]);
}

template <class T>
void launch_random(T* data, std::int64_t count, std::uint32_t seed, cudaStream_t stream) {
  if (count <= 0) return;
  fill_random_kernel<<<blocks_for(count), kThreads, 0, stream>>>(data, count, seed);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void fill_pattern(float* data, std::int64_t count, int rank, cudaStream_t stream) {
  if (count <= 0) return;
  fill_pattern_kernel<<<blocks_for(count), kThreads, 0, stream>>>(data, count, rank);
  LH_CUDA_CHECK(cudaGetLastError());
}

std::int64_t count_mismatches(const float* received, const std::vector<ReceivedRun>& runs, int ranks,
                              cudaStream_t stream) {
  DeviceBuffer<unsigned long long> wrong(1);
  LH_CUDA_CHECK(cudaMemsetAsync(wrong.data(), 0, wrong.size_bytes(), stream));
  for (const ReceivedRun& run : runs) {
    if (run.count == 0) continue;
    count_mismatches_kernel<<<blocks_for(run.count), kThreads, 0, stream>>>(received, run, ranks, wrong.data());
    LH_CUDA_CHECK(cudaGetLastError());
  }
  return static_cast<std::int64_t>(wrong.download(stream).front());
}

void fill_random(Bf16* data, std::int64_t count, std::uint32_t seed, cudaStream_t stream) {
  launch_random(reinterpret_cast<__nv_bfloat16*>(data), count, seed, stream);
}

void fill_random(float* data, std::int64_t count, std::uint32_t seed, cudaStream_t stream) {
  launch_random(data, count, seed, stream);
}

}  // namespace longhaul
