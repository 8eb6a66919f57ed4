#include "validate/gpu/elementwise_calls.h"

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/elementwise/adamw.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/cross_entropy.h"
#include "kernels/elementwise/merge.h"
#include "kernels/elementwise/rms_norm.h"
#include "kernels/elementwise/rope.h"
#include "kernels/elementwise/rows.h"
#include "kernels/elementwise/swiglu.h"

namespace longhaul {
namespace {

constexpr int kHeadDim = 128;
constexpr double kRopeBase = 500000;

using Enqueue = std::function<void()>;

// Taken from the pool in a fixed order; lambdas hold the pointers.
struct Maker {
  const CalibrationCall& call;
  OperandPool& pool;
  cudaStream_t stream;

  std::int64_t tokens() const { return call.m; }
  std::int64_t width() const { return call.n; }
  int heads() const { return static_cast<int>(call.n / kHeadDim); }
  Bf16* rows() { return pool.take<Bf16>(tokens() * width()); }
  float* floats() { return pool.take<float>(tokens() * width()); }

  std::int32_t* numbers(const std::vector<std::int32_t>& host) {
    auto* const device = pool.take<std::int32_t>(static_cast<std::int64_t>(host.size()));
    LH_CUDA_CHECK(
        cudaMemcpyAsync(device, host.data(), host.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice, stream));
    LH_CUDA_CHECK(cudaStreamSynchronize(stream));  // `host` ends here
    return device;
  }
  // A permutation of the tokens: a step that shares no factor with their number.
  std::int32_t* mixed_rows() {
    std::int64_t step = 30011;
    while (std::gcd(step, tokens()) != 1) ++step;
    std::vector<std::int32_t> index(static_cast<std::size_t>(tokens()));
    for (std::int64_t i = 0; i < tokens(); ++i)
      index[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * step % tokens());
    return numbers(index);
  }
  std::int32_t* targets() {
    std::vector<std::int32_t> classes(static_cast<std::size_t>(tokens()));
    for (std::int64_t i = 0; i < tokens(); ++i) {
      classes[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7919 % width());
    }
    return numbers(classes);
  }

  Enqueue norm(bool backward);
  Enqueue product(bool backward);
  Enqueue heads_call();
  Enqueue merge();
  Enqueue move(bool pack);
  Enqueue cast(bool to_bf16);
  Enqueue optimizer();
  Enqueue loss(bool gradient);
};

Enqueue Maker::norm(bool backward) {
  const RmsNormShape shape{.tokens = tokens(), .width = width()};
  Bf16* const x = rows();
  Bf16* const w = pool.take<Bf16>(width());
  float* const r = pool.take<float>(tokens());
  Bf16* const y = rows();
  if (!backward) return [=, stream = stream] { rms_norm(shape, x, w, y, r, stream); };
  Bf16* const dx = rows();
  float* const dw = pool.take<float>(width());
  float* const scratch = pool.take<float>(static_cast<std::int64_t>(rms_norm_scratch(shape)));
  return [=, stream = stream] { rms_norm_backward(shape, x, w, r, y, dx, dw, scratch, stream); };
}

Enqueue Maker::product(bool backward) {
  const SwigluShape shape{.tokens = tokens(), .width = width(), .stride = width()};
  Bf16* const gate = rows();
  Bf16* const up = rows();
  Bf16* const y = rows();
  if (!backward) return [=, stream = stream] { swiglu(shape, gate, up, y, stream); };
  Bf16* const d_gate = rows();
  Bf16* const d_up = rows();
  return [=, stream = stream] { swiglu_backward(shape, gate, up, y, d_gate, d_up, stream); };
}

Enqueue Maker::heads_call() {
  const RopeShape shape{.tokens = tokens(), .stride = width(), .heads = heads(), .head_dim = kHeadDim};
  const std::int32_t* const positions = mixed_rows();
  Bf16* const x = rows();
  return [=, stream = stream, frequencies = rope_frequencies(kHeadDim, kRopeBase)] {
    rope(shape, frequencies, positions, false, x, stream);
  };
}

Enqueue Maker::merge() {
  const TokenMergeShape shape{.tokens = tokens(), .heads = heads(), .head_dim = kHeadDim};
  float* const o = floats();
  float* const l = pool.take<float>(tokens() * heads());
  Bf16* const part = rows();
  float* const part_l = pool.take<float>(tokens() * heads());
  return [=, stream = stream] { merge_attention(shape, o, l, part, part_l, stream); };
}

Enqueue Maker::move(bool pack) {
  const std::int32_t* const index = mixed_rows();
  Bf16* const from = rows();
  Bf16* const to = rows();
  const std::int64_t row_bytes = width() * static_cast<std::int64_t>(sizeof(Bf16));
  if (pack) return [=, stream = stream, count = tokens()] { pack_rows(from, index, to, count, row_bytes, stream); };
  return [=, stream = stream, count = tokens()] { unpack_rows(from, index, to, count, row_bytes, stream); };
}

Enqueue Maker::cast(bool to_bf16) {
  float* const wide = floats();
  Bf16* const narrow = rows();
  const std::int64_t count = tokens() * width();
  if (to_bf16) return [=, stream = stream] { cast_to_bf16(wide, narrow, count, stream); };
  return [=, stream = stream] { cast_to_fp32(narrow, wide, count, stream); };
}

Enqueue Maker::optimizer() {
  const std::int64_t count = tokens() * width();
  const float* const gradient = floats();
  const AdamwState state{floats(), floats(), floats()};
  // The second moment of a real optimizer is not negative.
  LH_CUDA_CHECK(cudaMemsetAsync(state.v, 0, static_cast<std::size_t>(count) * sizeof(float), stream));
  Bf16* const weights = rows();
  return [=, stream = stream] { adamw({}, count, gradient, state, weights, stream); };
}

Enqueue Maker::loss(bool gradient) {
  const CrossEntropyShape shape{.tokens = tokens(), .vocabulary = width(), .stride = width()};
  const std::int32_t* const wanted = targets();
  Bf16* const logits = rows();
  float* const losses = pool.take<float>(tokens());
  if (!gradient) return [=, stream = stream] { cross_entropy(shape, logits, wanted, losses, stream); };
  return [=, stream = stream] { cross_entropy_with_gradient(shape, logits, wanted, 1.0F, losses, stream); };
}

}  // namespace

std::function<void()> elementwise_call(const CalibrationCall& call, OperandPool& pool, cudaStream_t stream) {
  Maker make{call, pool, stream};
  const std::string& kernel = call.kernel;
  if (kernel == "rms_norm" || kernel == "rms_norm_backward") return make.norm(kernel != "rms_norm");
  if (kernel == "swiglu" || kernel == "swiglu_backward") return make.product(kernel != "swiglu");
  if (kernel == "rope") return make.heads_call();
  if (kernel == "merge_attention") return make.merge();
  if (kernel == "pack_rows" || kernel == "unpack_rows") return make.move(kernel == "pack_rows");
  if (kernel == "cast_to_bf16" || kernel == "cast_to_fp32") return make.cast(kernel == "cast_to_bf16");
  if (kernel == "adamw") return make.optimizer();
  if (kernel == "cross_entropy" || kernel == "cross_entropy_with_gradient") return make.loss(kernel != "cross_entropy");
  throw std::invalid_argument("elementwise_call: no kernel " + kernel);
}

}  // namespace longhaul
