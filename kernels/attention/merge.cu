#include <cuda_bf16.h>

#include <stdexcept>
#include <string>

#include "kernels/attention/merge.h"
#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"

namespace longhaul {
namespace {

constexpr int kThreads = 256;

// head_dim / kGroupSize neighbouring threads of one warp share a (row, head): all read the log-sum-exp, then one writes
// it.
template <class Out>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(MergeShape shape, const __nv_bfloat16* __restrict__ part_o, const float* __restrict__ part_lse,
                 const std::int32_t* __restrict__ row_list, Out* __restrict__ o, float* __restrict__ lse) {
  const int threads_a_head = shape.head_dim / kGroupSize;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t from = thread / threads_a_head;  // row and head of the part
  const bool inside = from < shape.rows * shape.heads;
  const int column = static_cast<int>(thread % threads_a_head) * kGroupSize;
  const std::int64_t row = inside ? from / shape.heads : 0;
  const std::int64_t to =
      (row_list == nullptr || !inside ? row : static_cast<std::int64_t>(row_list[row])) * shape.heads +
      from % shape.heads;
  const float old_lse = inside ? lse[to] : 0.0F;
  const float new_lse = inside ? part_lse[from] : 0.0F;
  const float top = fmaxf(old_lse, new_lse);
  const bool changes = inside && (old_lse != -INFINITY || new_lse != -INFINITY);  // not by `top`: fmaxf drops NaN
  const float old_weight = changes ? expf(old_lse - top) : 0.0F;
  const float new_weight = changes ? expf(new_lse - top) : 0.0F;
  const float sum = old_weight + new_weight;
  __syncwarp();
  if (!changes) return;
  FloatGroup a = load_group(o + to * shape.head_dim + column);
  const FloatGroup b = load_group(part_o + from * shape.head_dim + column);
#pragma unroll
  for (int i = 0; i < kGroupSize; ++i) {
    // A side without keys may hold anything.
    const float old_part = old_weight > 0 ? old_weight * a.value[i] : 0.0F;
    a.value[i] = (old_part + (new_weight > 0 ? new_weight * b.value[i] : 0.0F)) / sum;
  }
  store_group(a, o + to * shape.head_dim + column);
  if (column == 0) lse[to] = top + logf(sum);
}

template <class Out>
void launch(const MergeShape& shape, const Bf16* part_o, const float* part_lse, const std::int32_t* row_list, Out* o,
            float* lse, cudaStream_t stream) {
  if (shape.head_dim != 64 && shape.head_dim != 128 && shape.head_dim != 256) {
    throw std::invalid_argument("merge_partials: head dimension " + std::to_string(shape.head_dim) +
                                "; supported are 64, 128 and 256");
  }
  if (shape.rows < 0 || shape.heads < 1) throw std::invalid_argument("merge_partials: negative rows or no heads");
  const std::int64_t threads = shape.rows * shape.heads * (shape.head_dim / kGroupSize);
  const std::int64_t blocks = (threads + kThreads - 1) / kThreads;
  if (blocks == 0) return;
  if (blocks > 0x7FFFFFFF) throw std::invalid_argument("merge_partials: rows x heads overflow one launch");
  merge_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      shape, reinterpret_cast<const __nv_bfloat16*>(part_o), part_lse, row_list, o, lse);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void merge_partials(const MergeShape& shape, const Bf16* part_o, const float* part_lse, const std::int32_t* row_list,
                    Bf16* o, float* lse, cudaStream_t stream) {
  launch(shape, part_o, part_lse, row_list, reinterpret_cast<__nv_bfloat16*>(o), lse, stream);
}

void merge_partials(const MergeShape& shape, const Bf16* part_o, const float* part_lse, const std::int32_t* row_list,
                    float* o, float* lse, cudaStream_t stream) {
  launch(shape, part_o, part_lse, row_list, o, lse, stream);
}

}  // namespace longhaul
