#include <cuda_bf16.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"
#include "validate/device/cuda/row_kernels.h"
#include "validate/device/cuda/row_launch.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;
constexpr int kMostSources = 64;
constexpr unsigned kMostBlocks = 132 * 16;

// What a kernel reads or writes: element (row, column) at data[row * stride + column].
struct RowsArgument {
  void* data;
  const std::int32_t* index;
  long long stride;
  int bf16;
};
struct Sources {
  RowsArgument rows[kMostSources];
  int count;
};
struct Extent {
  unsigned rows, groups;  // groups of V elements a row
};

__device__ long long first_of(const RowsArgument& rows, unsigned row) {
  if (rows.index == nullptr) return row * rows.stride;
  const std::int32_t number = rows.index[row];
  return number < 0 ? -1 : number * rows.stride;
}

struct OneFloat {
  float value[1];
};
template <int V>
using Values = std::conditional_t<V == kGroupSize, FloatGroup, OneFloat>;
static_assert(kWideGroup == kGroupSize);

template <int V>
__device__ Values<V> load(const RowsArgument& rows, long long at) {
  if constexpr (V == kGroupSize) {
    return rows.bf16 != 0 ? load_group(static_cast<const __nv_bfloat16*>(rows.data) + at)
                          : load_group(static_cast<const float*>(rows.data) + at);
  } else {
    return {{rows.bf16 != 0 ? __bfloat162float(static_cast<const __nv_bfloat16*>(rows.data)[at])
                            : static_cast<const float*>(rows.data)[at]}};
  }
}

template <int V>
__device__ void store(const RowsArgument& rows, long long at, const Values<V>& values) {
  if constexpr (V == kGroupSize) {
    if (rows.bf16 != 0) {
      store_group(values, static_cast<__nv_bfloat16*>(rows.data) + at);
    } else {
      store_group(values, static_cast<float*>(rows.data) + at);
    }
  } else if (rows.bf16 != 0) {
    static_cast<__nv_bfloat16*>(rows.data)[at] = __float2bfloat16_rn(values.value[0]);
  } else {
    static_cast<float*>(rows.data)[at] = values.value[0];
  }
}

// Calls body(row, first column) for every group of V elements.
template <int V, class Body>
__device__ void for_each_group(const Extent& extent, const Body& body) {
  const unsigned long long total = static_cast<unsigned long long>(extent.rows) * extent.groups;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x; i < total;
       i += step) {
    unsigned row, group;
    if (total <= 0xffffffffULL) {  // 32-bit division is several times faster
      row = static_cast<unsigned>(i) / extent.groups;
      group = static_cast<unsigned>(i) - row * extent.groups;
    } else {
      row = static_cast<unsigned>(i / extent.groups);
      group = static_cast<unsigned>(i - static_cast<unsigned long long>(row) * extent.groups);
    }
    body(row, static_cast<long long>(group) * V);
  }
}

template <int V>
__global__ void copy_kernel(RowsArgument from, RowsArgument to, Extent extent, int accumulate) {
  for_each_group<V>(extent, [&](unsigned row, long long column) {
    const long long source = first_of(from, row);
    const long long target = first_of(to, row) + column;
    Values<V> values{};
    if (source >= 0) values = load<V>(from, source + column);
    if (accumulate != 0) {
      const Values<V> before = load<V>(to, target);
#pragma unroll
      for (int i = 0; i < V; ++i) values.value[i] += before.value[i];
    }
    store<V>(to, target, values);
  });
}

template <int V>
__global__ void fill_kernel(RowsArgument to, Extent extent, float value) {
  for_each_group<V>(extent, [&](unsigned row, long long column) {
    Values<V> values;
#pragma unroll
    for (int i = 0; i < V; ++i) values.value[i] = value;
    store<V>(to, first_of(to, row) + column, values);
  });
}

template <int V>
__global__ void sum_kernel(Sources from, RowsArgument to, Extent extent, int accumulate) {
  for_each_group<V>(extent, [&](unsigned row, long long column) {
    const long long target = first_of(to, row) + column;
    Values<V> sum{};
    if (accumulate != 0) sum = load<V>(to, target);
    for (int s = 0; s < from.count; ++s) {
      const long long source = first_of(from.rows[s], row);
      if (source < 0) continue;
      const Values<V> values = load<V>(from.rows[s], source + column);
#pragma unroll
      for (int i = 0; i < V; ++i) sum.value[i] += values.value[i];
    }
    store<V>(to, target, sum);
  });
}

// The finaliser of MurmurHash3.
__device__ unsigned scrambled(unsigned bits) {
  bits ^= bits >> 16;
  bits *= 0x85ebca6bU;
  bits ^= bits >> 13;
  bits *= 0xc2b2ae35U;
  return bits ^ (bits >> 16);
}

template <int V>
__global__ void noise_kernel(RowsArgument to, Extent extent, unsigned seed) {
  for_each_group<V>(extent, [&](unsigned row, long long column) {
    Values<V> values;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const unsigned bits = scrambled(scrambled(seed + row) + static_cast<unsigned>(column + i));
      values.value[i] = (static_cast<float>(bits >> 8) * 0x1p-23F - 1.0F) * (1.0F / 64);
    }
    store<V>(to, first_of(to, row) + column, values);
  });
}

__global__ void rms_scale_kernel(const __nv_bfloat16* x, float* r, long long tokens, int width, float epsilon) {
  for (long long token = blockIdx.x; token < tokens; token += gridDim.x) {
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x) * kGroupSize; i < width; i += kThreads * kGroupSize) {
      const uint4 bits = *reinterpret_cast<const uint4*>(x + token * width + i);  // one load, not four
      const FloatGroup values = floats_of(bits);
#pragma unroll
      for (int k = 0; k < kGroupSize; ++k) sum += values.value[k] * values.value[k];
    }
    const float total = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) r[token] = 1.0F / sqrtf(total / static_cast<float>(width) + epsilon);
  }
}

__global__ void embedding_kernel(EmbeddingGradient g) {
  const auto* rows = reinterpret_cast<const __nv_bfloat16*>(g.rows);
  auto* table = reinterpret_cast<__nv_bfloat16*>(g.table);
  for (long long i = blockIdx.x; i < g.count; i += gridDim.x) {
    const int begin = g.first[i], end = g.first[i + 1];
    __nv_bfloat16* line = table + static_cast<long long>(g.ids[i]) * g.width;
    for (long long j = threadIdx.x; j < g.width; j += blockDim.x) {
      float sum = g.accumulate ? __bfloat162float(line[j]) : 0.0F;
      for (int k = begin; k < end; ++k) {
        sum += __bfloat162float(rows[static_cast<long long>(g.listed[k]) * g.width + j]);
      }
      line[j] = __float2bfloat16_rn(sum);
    }
  }
}

__global__ void gate_kernel(const volatile int* gate) {
  constexpr unsigned long long kMostNanoseconds = 2'000'000'000ULL;
  unsigned long long begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (*gate == 0 && now - begin < kMostNanoseconds);
}

__global__ void delay_kernel(unsigned long long nanoseconds) {
  unsigned long long begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

RowsArgument argument(const DeviceRows& rows) { return {rows.data, rows.index, rows.stride, rows.bf16 ? 1 : 0}; }

unsigned blocks_for(std::int64_t groups) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((groups + kThreads - 1) / kThreads, 1, kMostBlocks));
}

// Calls launch(rows, extent, blocks, V as a constant) for rows that lie alike in `all`.
template <class Launch>
void launch_by_groups(std::vector<DeviceRows> all, const Launch& launch) {
  for (const RowLaunch& each : row_launches(std::move(all))) {
    const std::int64_t rows = each.rows.front().rows, groups = each.rows.front().columns / each.group;
    const Extent extent{static_cast<unsigned>(rows), static_cast<unsigned>(groups)};
    if (each.group == kWideGroup) {
      launch(each.rows, extent, blocks_for(rows * groups), std::integral_constant<int, kWideGroup>{});
    } else {
      launch(each.rows, extent, blocks_for(rows * groups), std::integral_constant<int, 1>{});
    }
    LH_CUDA_CHECK(cudaGetLastError());
  }
}

}  // namespace

void copy_rows(const DeviceRows& from, const DeviceRows& to, bool accumulate, cudaStream_t stream) {
  launch_by_groups({from, to}, [&](const std::vector<DeviceRows>& rows, Extent extent, unsigned blocks, auto width) {
    copy_kernel<decltype(width)::value>
        <<<blocks, kThreads, 0, stream>>>(argument(rows[0]), argument(rows[1]), extent, accumulate ? 1 : 0);
  });
}

void fill_rows(const DeviceRows& to, float value, cudaStream_t stream) {
  launch_by_groups({to}, [&](const std::vector<DeviceRows>& rows, Extent extent, unsigned blocks, auto width) {
    fill_kernel<decltype(width)::value><<<blocks, kThreads, 0, stream>>>(argument(rows[0]), extent, value);
  });
}

void sum_rows(const std::vector<DeviceRows>& from, const DeviceRows& to, bool accumulate, cudaStream_t stream) {
  if (from.empty() || from.size() > kMostSources) {
    throw std::invalid_argument("sum_rows: " + std::to_string(from.size()) + " sources; supported: 1 to 64");
  }
  std::vector<DeviceRows> all = from;
  all.push_back(to);
  launch_by_groups(all, [&](const std::vector<DeviceRows>& rows, Extent extent, unsigned blocks, auto width) {
    Sources sources{};
    sources.count = static_cast<int>(rows.size()) - 1;
    for (int i = 0; i < sources.count; ++i) sources.rows[i] = argument(rows[static_cast<std::size_t>(i)]);
    sum_kernel<decltype(width)::value>
        <<<blocks, kThreads, 0, stream>>>(sources, argument(rows.back()), extent, accumulate ? 1 : 0);
  });
}

void noise_rows(const DeviceRows& to, std::uint32_t seed, cudaStream_t stream) {
  launch_by_groups({to}, [&](const std::vector<DeviceRows>& rows, Extent extent, unsigned blocks, auto width) {
    noise_kernel<decltype(width)::value><<<blocks, kThreads, 0, stream>>>(argument(rows[0]), extent, seed);
  });
}

void rms_scale(const Bf16* x, float* r, std::int64_t tokens, std::int64_t width, float epsilon, cudaStream_t stream) {
  if (width % 8 != 0 || reinterpret_cast<std::uintptr_t>(x) % 16 != 0) {
    throw std::invalid_argument("rms_scale: rows of whole groups of 8 elements at multiples of 16 bytes are supported");
  }
  if (tokens == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tokens, kMostBlocks));
  rms_scale_kernel<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const __nv_bfloat16*>(x), r, tokens,
                                                    static_cast<int>(width), epsilon);
  LH_CUDA_CHECK(cudaGetLastError());
}

void embedding_gradient(const EmbeddingGradient& gradient, cudaStream_t stream) {
  if (gradient.count == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(gradient.count, kMostBlocks * 4));
  embedding_kernel<<<blocks, kThreads, 0, stream>>>(gradient);
  LH_CUDA_CHECK(cudaGetLastError());
}

void hold_at_gate(const int* gate, cudaStream_t stream) {
  gate_kernel<<<1, 1, 0, stream>>>(gate);
  LH_CUDA_CHECK(cudaGetLastError());
}

void delay(std::int64_t nanoseconds, cudaStream_t stream) {
  delay_kernel<<<1, 1, 0, stream>>>(static_cast<unsigned long long>(nanoseconds));
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
