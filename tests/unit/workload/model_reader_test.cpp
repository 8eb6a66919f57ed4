#include "sim/workload/model_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/core/data_files.h"
#include "sim/core/json.h"
#include "tests/unit/error_texts.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json config() {
  return {{"hidden_size", 64},        {"intermediate_size", 256}, {"num_attention_heads", 8},
          {"num_key_value_heads", 2}, {"num_hidden_layers", 2},   {"vocab_size", 100}};
}

std::vector<std::string> model_faults(const Json& value) {
  Errors errors;
  const bool read = read_model(value, "m", "config.json", "", errors).has_value();
  EXPECT_EQ(read, errors.empty());
  return texts(errors);
}

std::vector<std::string> faults_with(const char* key, const Json& value) {
  Json changed = config();
  changed[key] = value;
  return model_faults(changed);
}

TEST(ModelReader, DefaultsOfAHuggingFaceFile) {
  Json value = config();
  value.erase("num_key_value_heads");
  value["head_dim"] = nullptr;
  value["rope_theta"] = 500000.0;  // of no interest, allowed
  Errors errors;
  const auto model = read_model(value, "m", "config.json", "", errors);
  ASSERT_TRUE(model);
  EXPECT_EQ(model->kv_heads, 8);  // multi-head attention
  EXPECT_EQ(model->head_dim, 8);
  EXPECT_FALSE(model->tied_embeddings);
  EXPECT_FALSE(model->qkv_bias);
}

TEST(ModelReader, ModelTypeSaysBiasAndNorm) {
  Errors errors;
  Json value = config();
  value["model_type"] = "qwen2";
  EXPECT_TRUE(read_model(value, "m", "f", "", errors)->qkv_bias);
  value["model_type"] = "qwen3";
  EXPECT_TRUE(read_model(value, "m", "f", "", errors)->qk_norm);
  EXPECT_FALSE(read_model(value, "m", "f", "", errors)->qkv_bias);
}

TEST(ModelReader, EveryMissingKeyAtOnce) {
  EXPECT_THAT(model_faults(Json::object()),
              ElementsAre("config.json: /hidden_size: is missing; expected an integer from 1 to 1048576",
                          "config.json: /intermediate_size: is missing; expected an integer from 1 to 1048576",
                          "config.json: /num_attention_heads: is missing; expected an integer from 1 to 1048576",
                          "config.json: /num_hidden_layers: is missing; expected an integer from 1 to 16384",
                          "config.json: /vocab_size: is missing; expected an integer from 2 to 16777216"));
}

TEST(ModelReader, WrongValues) {
  EXPECT_THAT(faults_with("num_hidden_layers", -3),
              ElementsAre("config.json: /num_hidden_layers: is -3; expected an integer from 1 to 16384"));
  EXPECT_THAT(faults_with("hidden_size", "big"),
              ElementsAre("config.json: /hidden_size: is \"big\"; expected an integer from 1 to 1048576"));
  EXPECT_THAT(faults_with("hidden_size", 65),
              ElementsAre("config.json: /hidden_size: is 65; expected a multiple of num_attention_heads (8), or "
                          "head_dim given"));
  EXPECT_THAT(faults_with("num_key_value_heads", 3),
              ElementsAre("config.json: /num_key_value_heads: is 3; expected a divisor of num_attention_heads (8)"));
  EXPECT_THAT(faults_with("head_dim", 7), ElementsAre("config.json: /head_dim: is 7; expected an even number"));
  EXPECT_THAT(faults_with("hidden_act", "gelu"),
              ElementsAre("config.json: /hidden_act: is \"gelu\"; expected one of silu; did you mean \"silu\"?"));
  EXPECT_THAT(faults_with("tie_word_embeddings", "yes"),
              ElementsAre("config.json: /tie_word_embeddings: is \"yes\"; expected true or false"));
  EXPECT_THAT(faults_with("model_type", "qwen4"),
              ElementsAre("config.json: /model_type: is \"qwen4\"; expected one of llama, mistral, qwen2, qwen3; did "
                          "you mean \"qwen2\"?"));
}

TEST(ModelReader, WhatIsNotScheduledIsRefused) {
  EXPECT_THAT(faults_with("attention_bias", true),
              ElementsAre("config.json: /attention_bias: is true; expected false; biases on the output and FFN "
                          "projections are not modelled"));
  EXPECT_THAT(faults_with("mlp_bias", true), ElementsAre(HasSubstr("/mlp_bias: is true")));
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    EXPECT_THAT(faults_with(key, 64), ElementsAre(HasSubstr("absent; mixture-of-experts layers come with later work")));
  }
  EXPECT_THAT(faults_with("sliding_window", 4096),
              ElementsAre("config.json: /sliding_window: is 4096; expected null, or use_sliding_window false; sliding "
                          "windows come with later work"));
  EXPECT_THAT(faults_with("layer_types", {"full_attention", "sliding_attention"}),
              ElementsAre("config.json: /layer_types/1: is \"sliding_attention\"; expected \"full_attention\"; other "
                          "layer types come with later work"));
  EXPECT_THAT(faults_with("layer_types", 3), ElementsAre(HasSubstr("a list of \"full_attention\"")));
  Json unused = config();
  unused["sliding_window"] = 32768;
  unused["use_sliding_window"] = false;
  unused["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_THAT(model_faults(unused), IsEmpty());
}

TEST(ModelReader, ReferenceIsNamePathOrObject) {
  Errors errors;
  EXPECT_TRUE(find_model(config(), "study.json", "/model", errors));
  const std::string path = *find_data_file(DataKind::kModel, "llama3-8b");
  EXPECT_EQ(find_model(Json(path), "study.json", "/model", errors)->layers, 32);
  EXPECT_THAT(errors, IsEmpty());
}

TEST(ModelReader, BadReferences) {
  Errors errors;
  EXPECT_FALSE(find_model(Json("llama3-9b"), "study.json", "/model", errors));
  EXPECT_FALSE(find_model(Json(8), "study.json", "/model", errors));
  EXPECT_FALSE(find_model(Json("no/such.json"), "here/study.json", "/model", errors));
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[0].to_string(),
            "study.json: /model: unknown model \"llama3-9b\"; expected one of llama-7b, llama3-8b, llama3.2-1b, "
            "llama3.2-3b, qwen1.5-1.8b, qwen2.5-3b, qwen3-8b, or a path; did you mean \"llama3-8b\"?");
  EXPECT_EQ(errors[1].to_string(),
            "study.json: /model: is 8; expected a shipped model's name, the path of a config.json, or an object");
  EXPECT_EQ(errors[2].to_string(),
            "here/no/such.json: cannot be read; expected a JSON file (named at here/study.json: /model)");
}

}  // namespace
}  // namespace longhaul
