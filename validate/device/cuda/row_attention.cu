#include <cmath>
#include <stdexcept>
#include <string>

#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"
#include "validate/device/cuda/row_attention.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;  // and keys a tile
constexpr int kHeads = 4;      // query heads a block
constexpr int kLanes = kThreads / kHeads;
constexpr int kColumns = static_cast<int>(kRowAttentionMostDim) / kLanes;  // of a thread
constexpr double kNothing = -1e300;                                        // below any score

struct Shared {
  double q[kHeads * kRowAttentionMostDim];  // scaled
  double d_o[kHeads * kRowAttentionMostDim];
  double weight[kHeads][kThreads];  // by key of the tile
  double reduce[kThreads];
  double lse[kHeads], delta[kHeads];
};

__device__ double value(Bf16 of) { return static_cast<double>(__uint_as_float(static_cast<unsigned>(of.bits) << 16)); }

// sum[h] = `of`[h] times the row, for all heads of the block.
__device__ void dots(const double* of, const Bf16* row, int dim, double (&sum)[kHeads]) {
  for (int h = 0; h < kHeads; ++h) sum[h] = 0;
  for (int c = 0; c < dim; c += kGroupSize) {
    const FloatGroup eight = load_group(reinterpret_cast<const __nv_bfloat16*>(row + c));
    for (int i = 0; i < kGroupSize; ++i) {
      const auto x = static_cast<double>(eight.value[i]);
      for (int h = 0; h < kHeads; ++h) sum[h] = fma(of[h * dim + c + i], x, sum[h]);
    }
  }
}

// Largest, or sum, of one number a thread, the same for all threads.
template <bool kLargest>
__device__ double over_threads(double mine, Shared& shared) {
  __syncthreads();
  shared.reduce[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      double& at = shared.reduce[threadIdx.x];
      const double other = shared.reduce[threadIdx.x + half];
      at = kLargest ? fmax(at, other) : at + other;
    }
  }
  __syncthreads();
  return shared.reduce[0];
}

struct Place {
  std::int64_t row = 0, first_key = 0, keys = 0;
  std::int64_t kv_stride = 0, k_column = 0, v_column = 0;
  int first_head = 0, heads = 0, dim = 0;
};

// Calls body(this thread's key, whether it sees it) for tiles that any thread sees something of.
template <class Body>
__device__ void over_tiles(const RowAttention& p, const Place& at, const Body& body) {
  for (std::int64_t first = 0; first < at.keys; first += kThreads) {
    const std::int64_t key = first + threadIdx.x;
    const bool sees = key < at.keys && p.sees[at.row * p.mask_stride + key] != 0;
    if (__syncthreads_or(sees) == 0) continue;
    body(first, sees ? p.kv + (at.first_key + key) * at.kv_stride : nullptr);
  }
}

// sum[] of this thread's head and columns += weight x rows `column`.. of the tile; all threads together.
__device__ void add_tile(const RowAttention& p, const Place& at, std::int64_t first, std::int64_t column,
                         const Shared& shared, double (&sum)[kColumns]) {
  const int head = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  const auto count = static_cast<int>(min(static_cast<long long>(kThreads), static_cast<long long>(at.keys - first)));
  const Bf16* rows = p.kv + (at.first_key + first) * at.kv_stride + column;
  for (int key = 0; key < count; ++key) {
    const double weight = shared.weight[head][key];
    if (weight == 0) continue;
    for (int i = 0; i < kColumns; ++i) {
      const int c = lane + i * kLanes;
      if (c < at.dim) sum[i] = fma(weight, value(rows[key * at.kv_stride + c]), sum[i]);
    }
  }
}

__device__ void store(const Place& at, const double (&sum)[kColumns], double* to) {
  const int head = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  if (head >= at.heads) return;
  for (int i = 0; i < kColumns; ++i) {
    const int c = lane + i * kLanes;
    if (c < at.dim) to[head * at.dim + c] = sum[i];
  }
}

__device__ void find_lse(const RowAttention& p, const Place& at, Shared& shared) {
  double top[kHeads], sum[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    top[h] = kNothing;
    sum[h] = 0;
  }
  over_tiles(p, at, [&](std::int64_t, const Bf16* row) {
    if (row == nullptr) return;
    double score[kHeads];
    dots(shared.q, row + at.k_column, at.dim, score);
    for (int h = 0; h < kHeads; ++h) {
      const double larger = fmax(top[h], score[h]);
      sum[h] = sum[h] * exp(top[h] - larger) + exp(score[h] - larger);
      top[h] = larger;
    }
  });
  for (int h = 0; h < kHeads; ++h) {
    const double all_top = over_threads<true>(top[h], shared);
    const double all = over_threads<false>(sum[h] * exp(top[h] - all_top), shared);
    if (threadIdx.x == 0) shared.lse[h] = all_top + log(all);
  }
  __syncthreads();
}

__global__ void row_attention_kernel(RowAttention p) {
  extern __shared__ double memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const auto sharing = static_cast<int>(p.q_heads / p.kv_heads);
  const int groups = (sharing + kHeads - 1) / kHeads;
  const int kv_head = static_cast<int>(blockIdx.y) / groups, group = static_cast<int>(blockIdx.y) % groups;
  Place at;
  at.row = blockIdx.x;
  at.first_key = p.first_key[at.row];
  at.keys = p.keys[at.row];
  at.dim = static_cast<int>(p.head_dim);
  at.kv_stride = 2 * p.kv_heads * p.head_dim;
  at.k_column = kv_head * p.head_dim;
  at.v_column = at.k_column + p.kv_heads * p.head_dim;
  at.first_head = kv_head * sharing + group * kHeads;
  at.heads = min(kHeads, sharing - group * kHeads);
  const double scale = 1 / sqrt(static_cast<double>(at.dim));
  const std::int64_t begin = at.row * p.q_heads * p.head_dim + at.first_head * at.dim;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * at.dim; i += kThreads) {
    const bool real = i < at.heads * at.dim;  // heads beyond the last count as zeros, and are not stored
    shared.q[i] = real ? value(p.q[begin + i]) * scale : 0;
    shared.d_o[i] = real ? value(p.d_o[begin + i]) : 0;
  }
  __syncthreads();
  find_lse(p, at, shared);

  double sum[kColumns] = {};
  over_tiles(p, at, [&](std::int64_t first, const Bf16* row) {
    double score[kHeads];
    if (row != nullptr) dots(shared.q, row + at.k_column, at.dim, score);
    for (int h = 0; h < kHeads; ++h) {
      shared.weight[h][threadIdx.x] = row != nullptr ? exp(score[h] - shared.lse[h]) : 0;
    }
    __syncthreads();
    add_tile(p, at, first, at.v_column, shared, sum);
  });
  store(at, sum, p.o + begin);
  // delta = sum of O dO, head by head; a thread's columns first.
  for (int h = 0; h < kHeads; ++h) {
    double mine = 0;
    if (static_cast<int>(threadIdx.x) / kLanes == h) {
      for (int i = 0; i < kColumns; ++i) {
        const int c = static_cast<int>(threadIdx.x) % kLanes + i * kLanes;
        if (c < at.dim) mine += sum[i] * shared.d_o[h * at.dim + c];
      }
    }
    const double delta = over_threads<false>(mine, shared);
    if (threadIdx.x == 0) shared.delta[h] = delta;
  }
  __syncthreads();

  for (double& each : sum) each = 0;
  over_tiles(p, at, [&](std::int64_t first, const Bf16* row) {
    double score[kHeads], dp[kHeads];
    if (row != nullptr) {
      dots(shared.q, row + at.k_column, at.dim, score);
      dots(shared.d_o, row + at.v_column, at.dim, dp);
    }
    for (int h = 0; h < kHeads; ++h) {
      shared.weight[h][threadIdx.x] =
          row != nullptr ? exp(score[h] - shared.lse[h]) * (dp[h] - shared.delta[h]) * scale : 0;
    }
    __syncthreads();
    add_tile(p, at, first, at.k_column, shared, sum);
  });
  store(at, sum, p.dq + begin);
  if (static_cast<int>(threadIdx.x) < at.heads) {
    p.lse[at.row * p.q_heads + at.first_head + threadIdx.x] = shared.lse[threadIdx.x];
  }
}

}  // namespace

void row_attention(const RowAttention& problem, cudaStream_t stream) {
  const RowAttention& p = problem;
  if (p.head_dim < 8 || p.head_dim % 8 != 0 || p.head_dim > kRowAttentionMostDim || p.kv_heads < 1 ||
      p.q_heads % p.kv_heads != 0 || p.q_heads < 1) {
    throw std::invalid_argument("row_attention: " + std::to_string(p.q_heads) + " query heads for " +
                                std::to_string(p.kv_heads) + " key heads of dimension " + std::to_string(p.head_dim) +
                                "; each key head serves the same number of query heads, and dimensions are multiples "
                                "of 8 up to " +
                                std::to_string(kRowAttentionMostDim));
  }
  if (p.rows == 0) return;
  const std::int64_t groups = (p.q_heads / p.kv_heads + kHeads - 1) / kHeads;
  static_assert(sizeof(Shared) < 48 << 10);
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>(p.kv_heads * groups));
  row_attention_kernel<<<grid, kThreads, sizeof(Shared), stream>>>(p);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
