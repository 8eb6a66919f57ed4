#include <algorithm>
#include <cmath>

#include "kernels/common/check.h"
#include "kernels/common/vector.cuh"
#include "kernels/elementwise/adamw.h"
#include "kernels/elementwise/arguments.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 16384;

struct Factors {
  float keep;  // 1 - lr decay
  float beta1, one_less_beta1, beta2, one_less_beta2;
  float step;        // lr / (1 - b1^t)
  float root_scale;  // 1 / sqrt(1 - b2^t)
  float epsilon;
};

__device__ void update(const Factors& f, float g, float& w, float& m, float& v) {
  m = f.beta1 * m + f.one_less_beta1 * g;
  v = f.beta2 * v + f.one_less_beta2 * g * g;
  w = w * f.keep - f.step * m / (sqrtf(v) * f.root_scale + f.epsilon);
}

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Factors f, std::int64_t count, const float* __restrict__ gradient, float* __restrict__ w,
                 float* __restrict__ m, float* __restrict__ v, __nv_bfloat16* __restrict__ weights) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t groups = count / kGroupSize;
  for (std::int64_t group = first; group < groups; group += threads) {
    const std::int64_t at = group * kGroupSize;
    const FloatGroup g = load_group(gradient + at);
    FloatGroup group_w = load_group(w + at), group_m = load_group(m + at), group_v = load_group(v + at);
#pragma unroll
    for (int j = 0; j < kGroupSize; ++j) update(f, g.value[j], group_w.value[j], group_m.value[j], group_v.value[j]);
    store_group(group_w, w + at);
    store_group(group_m, m + at);
    store_group(group_v, v + at);
    store_group(group_w, weights + at);
  }
  for (std::int64_t i = groups * kGroupSize + first; i < count; i += threads) {
    update(f, gradient[i], w[i], m[i], v[i]);
    weights[i] = __float2bfloat16_rn(w[i]);
  }
}

}  // namespace

void adamw(const AdamwSettings& settings, std::int64_t count, const float* gradient, const AdamwState& state,
           Bf16* weights, cudaStream_t stream) {
  require(settings.step >= 1, "adamw", "the step", settings.step, "1 and more");
  require(count >= 0, "adamw", "the number of elements", count, "0 and more");
  for (const void* tensor : std::initializer_list<const void*>{gradient, state.w, state.m, state.v, weights}) {
    require_groups(tensor, 0, "adamw", "");
  }
  if (count == 0) return;
  const auto t = static_cast<double>(settings.step);
  const Factors factors = {
      .keep = static_cast<float>(1 - settings.learning_rate * settings.weight_decay),
      .beta1 = static_cast<float>(settings.beta1),
      .one_less_beta1 = static_cast<float>(1 - settings.beta1),
      .beta2 = static_cast<float>(settings.beta2),
      .one_less_beta2 = static_cast<float>(1 - settings.beta2),
      .step = static_cast<float>(settings.learning_rate / (1 - std::pow(settings.beta1, t))),
      .root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(settings.beta2, t))),
      .epsilon = static_cast<float>(settings.epsilon),
  };
  const std::int64_t blocks = std::clamp<std::int64_t>(count / kGroupSize / kThreads + 1, 1, kMaxBlocks);
  adamw_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      factors, count, gradient, state.w, state.m, state.v, reinterpret_cast<__nv_bfloat16*>(weights));
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace longhaul
