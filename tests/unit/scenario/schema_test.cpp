// The JSON Schemas beside the data: shipped files are valid, what the reader refuses by shape is not, and the schemas
// name exactly the keys that the readers know.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/core/data_files.h"
#include "sim/workload/model_reader.h"
#include "tests/unit/json_schema/schema_errors.h"
#include "tests/unit/scenario/study_fixture.h"

namespace longhaul {
namespace {

// Schemas are of the sorted JSON type.
nlohmann::json load(const std::string& file) { return nlohmann::json::parse(read_json_file(file).value().dump()); }

nlohmann::json schema_json(const std::string& name) { return load(data_directory() + "/workloads/" + name); }

std::vector<std::string> properties(const nlohmann::json& object_schema) {
  std::vector<std::string> keys;
  for (const auto& [key, unused] : object_schema.at("properties").items()) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST(StudySchema, ShippedStudiesAreValid) {
  const nlohmann::json schema = schema_json("study.schema.json");
  for (const std::string& name : list_data_names(DataKind::kStudy)) {
    EXPECT_TRUE(obeys(schema, load(*find_data_file(DataKind::kStudy, name)))) << name;
    const Study study = read_study(name, known_to_shipped()).value();
    EXPECT_TRUE(obeys(schema, nlohmann::json::parse(study.resolved.dump()))) << name << ", resolved";
  }
  EXPECT_TRUE(obeys(schema, nlohmann::json::parse(example().dump())));
}

TEST(StudySchema, PropertiesAreTheReadersKeys) {
  const nlohmann::json schema = schema_json("study.schema.json");
  const nlohmann::json& parts = schema.at("definitions");
  EXPECT_EQ(properties(schema), study_keys());
  EXPECT_EQ(properties(parts.at("case")), case_keys());
  EXPECT_EQ(properties(parts.at("training")), training_keys());
  EXPECT_EQ(properties(parts.at("objective")), objective_keys());
  EXPECT_EQ(properties(parts.at("overlap")), overlap_keys());
  EXPECT_EQ(properties(parts.at("documents")), documents_keys());
  EXPECT_EQ(properties(parts.at("layout").at("oneOf").at(1)), layout_keys());
  EXPECT_EQ(properties(parts.at("strategy").at("oneOf").at(1)), strategy_keys());
}

// Faults of shape that both must refuse. (Names, sums and divisors are the reader's alone.)
TEST(StudySchema, RefusesWhatTheReaderRefuses) {
  const nlohmann::json schema = schema_json("study.schema.json");
  const std::vector<std::pair<std::string, Json>> changes = {
      {"/schema", "study/2"},
      {"/name", "a b"},
      {"/gpus", 0},
      {"/gpus", "8"},
      {"/objectve", Json::object()},
      {"/objective", {{"kind", "causal"}}},
      {"/objective", {{"kind", "block-diffusion"}}},
      {"/objective", {{"kind", "causal-lm"}, {"block_tokens", 4}}},
      {"/documents", Json::object()},
      {"/documents/explicit", {{5}}},
      {"/documents", {{"explicit", {{0}}}}},
      {"/documents", {{"lengths", "wlb"}, {"sequences", 4}}},
      {"/documents/sed", 1},
      {"/documents/lengths", {{"quantiles", 3}}},
      {"/overlap", "none"},
      {"/overlap", {{"slowdown", "off"}}},
      {"/overlap", {{"slowdown", "none"}, {"scale", 2}}},
      {"/overlap", {{"scale", -1}}},
      {"/overlap/factor", 2},
      {"/attention_library", "flash"},
      {"/training/zero_stage", 2},
      {"/training/passes", {"backward"}},
      {"/training/zero", 3},
      {"/layout", "bestt"},
      {"/layout/tp", 2},
      {"/layout/cp", 0},
      {"/strategies", Json::array()},
      {"/strategies/0", 7},
      {"/strategies/0", {{"label", "x"}}},
      {"/baseline", 3},
      {"/cases", Json::array()},
      {"/cases", {{{"gpus", 8}}}},
      {"/cases", {{{"name", "a"}, {"gpu", 8}}}}};
  for (const auto& [pointer, value] : changes) {
    const Json study = with(example(), pointer, value);
    EXPECT_FALSE(obeys(schema, nlohmann::json::parse(study.dump()))) << pointer << " " << value;
    EXPECT_FALSE(faults(study).empty()) << pointer << " " << value;
  }
  for (const char* key : {"schema", "name", "topology", "gpus", "model", "documents", "strategies"}) {
    EXPECT_FALSE(obeys(schema, nlohmann::json::parse(without(example(), key).dump()))) << key;
  }
}

TEST(ModelSchema, ShippedModelsAreValid) {
  const nlohmann::json schema = schema_json("model.schema.json");
  for (const std::string& name : list_data_names(DataKind::kModel)) {
    EXPECT_TRUE(obeys(schema, load(*find_data_file(DataKind::kModel, name)))) << name;
  }
}

TEST(ModelSchema, PropertiesAreTheReadersKeys) {
  EXPECT_EQ(properties(schema_json("model.schema.json")), model_keys());
}

TEST(ModelSchema, RefusesWhatTheReaderRefuses) {
  const nlohmann::json schema = schema_json("model.schema.json");
  const Json config = read_json_file(*find_data_file(DataKind::kModel, "llama3-8b")).value();
  const std::vector<std::pair<std::string, Json>> changes = {{"hidden_size", 0},
                                                             {"hidden_act", "gelu"},
                                                             {"model_type", "gpt2"},
                                                             {"attention_bias", true},
                                                             {"mlp_bias", true},
                                                             {"num_experts", 8},
                                                             {"num_local_experts", 8},
                                                             {"n_routed_experts", 64},
                                                             {"vocab_size", 1},
                                                             {"head_dim", "64"},
                                                             {"tie_word_embeddings", "no"},
                                                             {"layer_types", {"sliding_attention"}},
                                                             {"layer_types", 3},
                                                             {"num_hidden_layers", -1}};
  for (const auto& [key, value] : changes) {
    Json changed = config;
    changed[key] = value;
    Errors errors;
    EXPECT_FALSE(obeys(schema, nlohmann::json::parse(changed.dump()))) << key;
    EXPECT_FALSE(read_model(changed, "m", "m.json", "", errors)) << key;
  }
}

}  // namespace
}  // namespace longhaul
