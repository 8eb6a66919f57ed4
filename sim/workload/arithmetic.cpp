#include "sim/workload/arithmetic.h"

#include "sim/core/integers.h"

namespace longhaul {
namespace {

constexpr std::int64_t kElementBytes = 2;    // bf16
constexpr std::int64_t kLogSumExpBytes = 4;  // fp32

}  // namespace

Flops layer_matmul_flops(const ModelShape& model, std::int64_t rows) {
  return {2.0 * as_double(layer_parameters(model).matmul()) * as_double(rows)};
}

Flops head_flops(const ModelShape& model, std::int64_t rows) {
  return {2.0 * as_double(model.vocab * model.hidden) * as_double(rows)};
}

Flops matmul_flops_per_token(const ModelShape& model) { return {2.0 * as_double(matmul_parameters(model))}; }

Flops attention_forward_flops(const ModelShape& model, std::int64_t pairs) {
  return {4.0 * as_double(model.q_width()) * as_double(pairs)};
}

Flops attention_backward_flops(const ModelShape& model, std::int64_t pairs) {
  return {8.0 * as_double(model.q_width()) * as_double(pairs)};
}

Flops model_flops(const ModelShape& model, std::int64_t tokens, std::int64_t pairs) {
  return {6.0 * as_double(matmul_parameters(model)) * as_double(tokens) +
          12.0 * as_double(model.layers * model.q_width()) * as_double(pairs)};
}

Flops model_flops(const ModelShape& model, const Batch& batch) {
  return model_flops(model, batch.tokens(), batch_pairs(batch));
}

std::int64_t activation_bytes_per_row(const ModelShape& model, bool fused_swiglu) {
  const std::int64_t norms = 4 * model.hidden;     // input and output of both norms
  const std::int64_t query = 2 * model.q_width();  // Q and the attention output
  const std::int64_t key_value = 2 * model.kv_width();
  const std::int64_t ffn = (fused_swiglu ? 3 : 4) * model.ffn;  // gate, up, product; silu(gate) when not fused
  return kElementBytes * (norms + query + key_value + ffn) + kLogSumExpBytes * model.q_heads;
}

std::int64_t checkpoint_bytes_per_row(const ModelShape& model) { return kElementBytes * model.hidden; }

}  // namespace longhaul
