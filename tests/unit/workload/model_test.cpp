#include "sim/workload/model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/core/json.h"
#include "sim/workload/arithmetic.h"
#include "sim/workload/model_reader.h"

namespace longhaul {
namespace {

ModelShape shipped(const std::string& name) {
  Errors errors;
  const std::optional<ModelShape> model = find_model(Json(name), "study.json", "/model", errors);
  EXPECT_TRUE(model.has_value()) << name;
  for (const InputError& error : errors) ADD_FAILURE() << error.to_string();
  return model.value_or(ModelShape{});
}

// A small model whose every count is easy to do by hand.
ModelShape tiny() { return {"tiny", 8, 32, 4, 2, 2, 3, 97, false, false, false}; }

// basp.md table 2.3, last column: one ZeRO-3 all-gather of all parameters, per rank, N = 8, bf16, in GB:
// 7/8 x 2 bytes x parameters.
TEST(Model, AllGatherColumnOfBaspTable) {
  const std::vector<std::pair<std::string, std::string>> rows = {{"llama3.2-1b", "2.16"}, {"llama3.2-3b", "5.62"},
                                                                 {"llama3-8b", "14.05"},  {"qwen1.5-1.8b", "3.21"},
                                                                 {"qwen2.5-3b", "5.40"},  {"qwen3-8b", "14.33"}};
  for (const auto& [name, gigabytes] : rows) {
    const double bytes = 7.0 / 8.0 * 2.0 * static_cast<double>(total_parameters(shipped(name)));
    EXPECT_EQ(fmt::format("{:.2f}", bytes / 1e9), gigabytes) << name;
  }
}

// The shapes of basp.md table 2.3 (L, D, h, h_kv, d) and dpp.md 5 (7B).
TEST(Model, ShapesOfThePapers) {
  using Shape = std::array<std::int64_t, 7>;
  const std::vector<std::pair<std::string, Shape>> rows = {
      {"llama3.2-1b", {16, 2048, 32, 8, 64, 8192, 128256}},  {"llama3.2-3b", {28, 3072, 24, 8, 128, 8192, 128256}},
      {"llama3-8b", {32, 4096, 32, 8, 128, 14336, 128256}},  {"qwen1.5-1.8b", {24, 2048, 16, 16, 128, 5504, 151936}},
      {"qwen2.5-3b", {36, 2048, 16, 2, 128, 11008, 151936}}, {"qwen3-8b", {36, 4096, 32, 8, 128, 12288, 151936}},
      {"llama-7b", {32, 4096, 32, 32, 128, 11008, 32000}}};
  for (const auto& [name, shape] : rows) {
    const ModelShape m = shipped(name);
    EXPECT_EQ((Shape{m.layers, m.hidden, m.q_heads, m.kv_heads, m.head_dim, m.ffn, m.vocab}), shape) << name;
  }
}

// Published parameter counts of the checkpoints, to the parameter.
TEST(Model, TotalParametersOfTheCheckpoints) {
  EXPECT_EQ(total_parameters(shipped("llama3.2-1b")), 1235814400);
  EXPECT_EQ(total_parameters(shipped("llama3.2-3b")), 3212749824);
  EXPECT_EQ(total_parameters(shipped("llama3-8b")), 8030261248);
  EXPECT_EQ(total_parameters(shipped("qwen1.5-1.8b")), 1836828672);
  EXPECT_EQ(total_parameters(shipped("qwen2.5-3b")), 3085938688);
  EXPECT_EQ(total_parameters(shipped("qwen3-8b")), 8190735360);
  EXPECT_EQ(total_parameters(shipped("llama-7b")), 6738415616);
}

TEST(Model, LayerParametersByHand) {
  const LayerParameters p = layer_parameters(tiny());
  EXPECT_EQ(p.attention_norm, 8);
  EXPECT_EQ(p.qkv, 8 * (8 + 2 * 4));
  EXPECT_EQ(p.output, 8 * 8);
  EXPECT_EQ(p.gate_up, 8 * 64);
  EXPECT_EQ(p.down, 32 * 8);
  EXPECT_EQ(p.extra, 0);
  EXPECT_EQ(p.total(), 8 + 128 + 64 + 8 + 512 + 256);
}

TEST(Model, BiasAndQkNormAreExtra) {
  ModelShape model = tiny();
  model.qkv_bias = true;
  EXPECT_EQ(layer_parameters(model).extra, 8 + 4 + 4);
  model.qk_norm = true;
  EXPECT_EQ(layer_parameters(model).extra, 16 + 2 * 2);
  EXPECT_EQ(layer_parameters(model).matmul(), layer_parameters(tiny()).matmul());
}

// Matmul parameters: L (D (Hq d + 2 Hkv d) + Hq d D + 3 D F) + V D, whether the head is tied or not.
TEST(Model, MatmulParametersClosedForm) {
  for (const char* name : {"llama3.2-1b", "llama3-8b", "qwen2.5-3b", "qwen3-8b", "llama-7b"}) {
    const ModelShape m = shipped(name);
    const std::int64_t layer = 2 * m.hidden * m.head_dim * (m.q_heads + m.kv_heads) + 3 * m.hidden * m.ffn;
    EXPECT_EQ(matmul_parameters(m), m.layers * layer + m.vocab * m.hidden) << name;
  }
}

TEST(Model, TiedHeadHoldsTheNormOnly) {
  ModelShape model = tiny();
  EXPECT_EQ(head_parameters(model), 8 + 97 * 8);
  model.tied_embeddings = true;
  EXPECT_EQ(head_parameters(model), 8);
  EXPECT_EQ(embedding_parameters(model), 97 * 8);
}

TEST(Arithmetic, FlopsByHand) {
  const ModelShape m = tiny();
  const std::int64_t layer = 128 + 64 + 512 + 256;
  EXPECT_EQ(layer_matmul_flops(m, 10).value, 2.0 * layer * 10);
  EXPECT_EQ(head_flops(m, 10).value, 2.0 * 97 * 8 * 10);
  EXPECT_EQ(matmul_flops_per_token(m).value, 2.0 * (3 * layer + 97 * 8));
  EXPECT_EQ(attention_forward_flops(m, 55).value, 4.0 * 4 * 2 * 55);
  EXPECT_EQ(attention_backward_flops(m, 55).value, 8.0 * 4 * 2 * 55);
  EXPECT_EQ(model_flops(m, 10, 55).value, 6.0 * (3 * layer + 97 * 8) * 10 + 12.0 * 3 * 4 * 2 * 55);
}

// MFU's FLOPs are forward plus backward, three times the forward matmuls and attention of all layers and the head.
TEST(Arithmetic, ModelFlopsAreThreeForwards) {
  const ModelShape m = shipped("llama3-8b");
  const std::int64_t tokens = 131072;
  const std::int64_t pairs = tokens * (tokens + 1) / 2;
  const double forward = static_cast<double>(m.layers) * layer_matmul_flops(m, tokens).value +
                         head_flops(m, tokens).value +
                         static_cast<double>(m.layers) * attention_forward_flops(m, pairs).value;
  EXPECT_NEAR(model_flops(m, tokens, pairs).value / (3 * forward), 1.0, 1e-14);
}

// dpp.md section 8, the table of activation bytes per token and layer, and its whole-model column in MiB per token.
TEST(Arithmetic, ActivationBytesOfDppTable) {
  const auto shape = [](std::int64_t hidden, std::int64_t ffn, std::int64_t heads, std::int64_t kv,
                        std::int64_t layers) {
    return ModelShape{"", hidden, ffn, heads, kv, 128, layers, 32000, false, false, false};
  };
  struct Row {
    ModelShape model;
    std::int64_t fused, unfused;
    const char* mebibytes;
  };
  const std::vector<Row> rows = {{shipped("llama-7b"), 131712, 153728, "4.69"},
                                 {shape(5120, 13824, 40, 40, 40), 165024, 192672, "7.35"},
                                 {shape(6656, 17920, 52, 52, 60), 214224, 250064, "14.31"},
                                 {shipped("llama3-8b"), 139392, 168064, "5.13"},
                                 {shape(8192, 28672, 64, 8, 80), 274688, 332032, "25.33"}};
  for (const Row& row : rows) {
    EXPECT_EQ(activation_bytes_per_row(row.model, true), row.fused);
    EXPECT_EQ(activation_bytes_per_row(row.model, false), row.unfused);
    const double whole = static_cast<double>(row.model.layers * row.unfused) / (1 << 20);
    EXPECT_EQ(fmt::format("{:.2f}", whole), row.mebibytes);
  }
  EXPECT_EQ(checkpoint_bytes_per_row(shipped("llama-7b")), 8192);
}

}  // namespace
}  // namespace longhaul
