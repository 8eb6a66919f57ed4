// The shape of a decoder-only transformer, and the arithmetic that follows from it alone.
//
// The layer that Longhaul schedules: RMSNorm, one fused QKV projection, RoPE, grouped-query attention, output
// projection, residual add, RMSNorm, fused gate+up projection, SwiGLU, down projection, residual add.
#pragma once

#include <cstdint>
#include <string>

namespace longhaul {

// Keys as in a Hugging Face config.json, in the units named there (elements, heads, layers).
struct ModelShape {
  std::string name;
  std::int64_t hidden = 0;       // hidden_size
  std::int64_t ffn = 0;          // intermediate_size
  std::int64_t q_heads = 0;      // num_attention_heads
  std::int64_t kv_heads = 0;     // num_key_value_heads
  std::int64_t head_dim = 0;     // head_dim, else hidden_size / num_attention_heads
  std::int64_t layers = 0;       // num_hidden_layers
  std::int64_t vocab = 0;        // vocab_size
  bool tied_embeddings = false;  // tie_word_embeddings
  bool qkv_bias = false;         // Qwen1.5, Qwen2.5: bias on q, k and v
  bool qk_norm = false;          // Qwen3: RMSNorm over head_dim on q and k

  std::int64_t q_width() const { return q_heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

// Elements of the parameter tensors of one layer, in the order in which they stand in the layer's flat range. Bias and
// QK-norm parameters count in bytes (they are stored, gathered and reduced); their element-wise work is not modelled.
struct LayerParameters {
  std::int64_t attention_norm = 0;  // hidden
  std::int64_t qkv = 0;             // hidden x qkv_width
  std::int64_t output = 0;          // q_width x hidden
  std::int64_t ffn_norm = 0;        // hidden
  std::int64_t gate_up = 0;         // hidden x 2 ffn
  std::int64_t down = 0;            // ffn x hidden
  std::int64_t extra = 0;           // bias and QK-norm, last in the range
  std::int64_t total() const { return attention_norm + qkv + output + ffn_norm + gate_up + down + extra; }
  std::int64_t matmul() const { return qkv + output + gate_up + down; }
};

LayerParameters layer_parameters(const ModelShape& model);

// Elements of the embedding table; of the final norm plus head (the head is 0 elements when tied).
std::int64_t embedding_parameters(const ModelShape& model);
std::int64_t head_parameters(const ModelShape& model);
std::int64_t total_parameters(const ModelShape& model);

// Parameters that take part in matrix products: all layers' matmul parameters plus the vocabulary head (tied or not).
std::int64_t matmul_parameters(const ModelShape& model);

}  // namespace longhaul
