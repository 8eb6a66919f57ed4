#include "sim/workload/model.h"

namespace longhaul {

LayerParameters layer_parameters(const ModelShape& model) {
  LayerParameters parameters;
  parameters.attention_norm = model.hidden;
  parameters.qkv = model.hidden * model.qkv_width();
  parameters.output = model.q_width() * model.hidden;
  parameters.ffn_norm = model.hidden;
  parameters.gate_up = model.hidden * 2 * model.ffn;
  parameters.down = model.ffn * model.hidden;
  parameters.extra = (model.qkv_bias ? model.qkv_width() : 0) + (model.qk_norm ? 2 * model.head_dim : 0);
  return parameters;
}

std::int64_t embedding_parameters(const ModelShape& model) { return model.vocab * model.hidden; }

std::int64_t head_parameters(const ModelShape& model) {
  return model.hidden + (model.tied_embeddings ? 0 : model.vocab * model.hidden);
}

std::int64_t total_parameters(const ModelShape& model) {
  return embedding_parameters(model) + model.layers * layer_parameters(model).total() + head_parameters(model);
}

std::int64_t matmul_parameters(const ModelShape& model) {
  return model.layers * layer_parameters(model).matmul() + model.vocab * model.hidden;
}

}  // namespace longhaul
