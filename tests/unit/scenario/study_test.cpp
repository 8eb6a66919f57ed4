#include "sim/scenario/study.h"

#include <gmock/gmock.h>

#include <fstream>

#include "sim/core/data_files.h"
#include "tests/unit/scenario/study_fixture.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

TEST(Study, ExampleOfTheContract) {
  const Study study = read(example());
  ASSERT_EQ(study.cases.size(), 1u);
  const StudyCase& only = study.cases[0];
  EXPECT_EQ(study.name, "llama3-8b-128k-on-8-h200");
  EXPECT_EQ(only.name, study.name);
  EXPECT_EQ(only.gpus, 8);
  EXPECT_EQ(only.topology.gpus_per_node, 8);
  EXPECT_EQ(only.model.layers, 32);
  EXPECT_EQ(only.documents.sequences, 16);
  EXPECT_EQ(only.training.micro_batch_sequences, 2);
  EXPECT_EQ(only.baseline, "allgather-cp");
  ASSERT_EQ(only.strategies.size(), 6u);
  EXPECT_EQ(only.strategies[2].label, "flashcp");
  EXPECT_EQ(only.strategies[2].options, Json({{"imbalance_limit", 1.05}}));
  EXPECT_EQ(only.strategies[2].path, "/strategies/2");
  EXPECT_EQ(only.strategies[0].layout.degrees.tp, 1);
  EXPECT_EQ(only.strategies[0].micro_batch_sequences, 2);
  EXPECT_FALSE(only.strategies[0].overrides_micro_batch);
}

TEST(Study, DefaultsAreFilledIn) {
  Json small = example();
  for (const char* key : {"objective", "training", "layout", "baseline"}) small.erase(key);
  small["documents"].erase("seed");
  const Study study = read(small);
  const StudyCase& only = study.cases.at(0);
  EXPECT_EQ(only.objective.kind, ObjectiveKind::kCausalLm);
  EXPECT_EQ(only.training.zero_stage, 3);
  EXPECT_EQ(only.training.recompute, Recompute::kFull);
  EXPECT_EQ(only.training.micro_batch_sequences, 1);
  EXPECT_EQ(only.training.scope, Scope::kStep);
  EXPECT_TRUE(only.training.backward);
  EXPECT_EQ(only.baseline, "allgather-cp");
  const Json& resolved = study.resolved;
  EXPECT_EQ(resolved["training"].dump(),
            R"({"optimizer":"adamw","zero_stage":3,"recompute":"full","dtype":"bf16","micro_batch_sequences":1,)"
            R"("scope":"step","passes":["forward","backward"]})");
  EXPECT_EQ(resolved["documents"].dump(),
            R"({"lengths":"wlb","context_tokens":131072,"sequences":16,"seed":1,"steps":1})");
  EXPECT_EQ(resolved["objective"].dump(), R"({"kind":"causal-lm"})");
  EXPECT_EQ(resolved["layout"].dump(), "{}");
  EXPECT_EQ(resolved["strategies"][2].dump(),
            R"({"name":"flashcp","label":"flashcp","layout":{},"imbalance_limit":1.05})");
}

TEST(Study, OverlapIsCalibratedUnlessTheStudySaysOtherwise) {
  const Study plain = read(example());
  EXPECT_EQ(plain.cases.at(0).overlap.added(), 1);
  EXPECT_EQ(plain.resolved["overlap"].dump(), R"({"slowdown":"calibrated","scale":1.0})");
  EXPECT_EQ(plain.cases.at(0).attention_library, "cudnn");
  EXPECT_EQ(plain.resolved["attention_library"], "cudnn");
  const Study flash = read(with(example(), "/attention_library", "flash-attention-3"));
  EXPECT_EQ(flash.cases.at(0).attention_library, "flash-attention-3");
  EXPECT_EQ(flash.resolved["attention_library"], "flash-attention-3");
  const Json row = {{"name", "ulysses"}, {"label", "own"}, {"attention_library", "cudnn"}};
  const Study mixed = read(with(flash.resolved, "/strategies/1", row));
  EXPECT_EQ(mixed.cases.at(0).strategies.at(0).attention_library, "");
  EXPECT_EQ(mixed.cases.at(0).strategies.at(1).attention_library, "cudnn");
  EXPECT_EQ(read(mixed.resolved).resolved.dump(), mixed.resolved.dump());
  EXPECT_EQ(read(with(example(), "/strategies/1", row)).cases.at(0).strategies.at(1).attention_library, "");
  const Study none = read(with(example(), "/overlap", {{"slowdown", "none"}}));
  EXPECT_EQ(none.cases.at(0).overlap.added(), 0);
  EXPECT_EQ(none.resolved["overlap"].dump(), R"({"slowdown":"none"})");
  EXPECT_EQ(read(none.resolved).resolved.dump(), none.resolved.dump());
  EXPECT_EQ(read(with(example(), "/overlap", {{"scale", 2.5}})).cases.at(0).overlap.added(), 2.5);
}

TEST(Study, EveryTrainingOption) {
  Json study = with(example(), "/training",
                    {{"zero_stage", 0}, {"recompute", "none"}, {"scope", "attention"}, {"passes", {"forward"}}});
  const Training training = read(study).cases.at(0).training;
  EXPECT_EQ(training.zero_stage, 0);
  EXPECT_EQ(training.recompute, Recompute::kNone);
  EXPECT_EQ(training.scope, Scope::kAttention);
  EXPECT_FALSE(training.backward);
  study["training"]["passes"] = {"backward", "forward"};
  study["training"]["scope"] = "layers";
  EXPECT_TRUE(read(study).cases.at(0).training.backward);
  EXPECT_EQ(read(study).cases.at(0).training.scope, Scope::kLayers);
  study["training"]["scope"] = "forward-backward";
  EXPECT_EQ(read(study).cases.at(0).training.scope, Scope::kForwardBackward);
}

TEST(Study, EntriesHaveTheirOwnLabelLayoutAndMicroBatch) {
  const Json entry = {
      {"name", "ulysses"}, {"label", "u2"}, {"layout", {{"sp", 4}, {"dp", 2}}}, {"micro_batch_sequences", 4}};
  Json study = with(example(), "/strategies", {"allgather-cp", entry, {{"name", "basp"}, {"layout", "best"}}});
  const StudyCase only = read(study).cases.at(0);
  EXPECT_EQ(only.strategies[1].label, "u2");
  EXPECT_EQ(only.strategies[1].layout.degrees.sp, 4);
  EXPECT_EQ(only.strategies[1].layout.degrees.tp, std::nullopt) << "an entry's layout replaces that of the case";
  EXPECT_EQ(only.strategies[1].micro_batch_sequences, 4);
  EXPECT_TRUE(only.strategies[1].overrides_micro_batch);
  EXPECT_TRUE(only.strategies[2].layout.best);
  study["layout"] = "best";
  EXPECT_TRUE(read(study).cases.at(0).strategies[0].layout.best);
  EXPECT_FALSE(read(study).cases.at(0).strategies[1].layout.best);
}

TEST(Study, CasesLieOverTheTopLevel) {
  Json study = example();
  study["cases"] = {{{"name", "a"}},
                    {{"name", "b"},
                     {"gpus", 16},
                     {"training", {{"recompute", "none"}}},
                     {"documents", {{"explicit", {{5}, {7}}}}},
                     {"objective", {{"kind", "block-diffusion"}, {"block_tokens", 32}}},
                     {"strategies", {"csbp"}},
                     {"baseline", "csbp"}}};
  const Study result = read(study);
  ASSERT_EQ(result.cases.size(), 2u);
  EXPECT_EQ(result.cases[0].name, "a");
  EXPECT_EQ(result.cases[0].gpus, 8);
  EXPECT_EQ(result.cases[0].strategies[1].path, "/strategies/1");
  const StudyCase& b = result.cases[1];
  EXPECT_EQ(b.gpus, 16);
  EXPECT_EQ(b.training.recompute, Recompute::kNone);
  EXPECT_EQ(b.training.micro_batch_sequences, 2) << "training is laid over key by key";
  EXPECT_EQ(b.objective.block_tokens, 32);
  EXPECT_FALSE(b.documents.lengths) << "documents are replaced whole";
  EXPECT_EQ(b.strategies[0].path, "/cases/1/strategies/0");
}

TEST(Study, SeedOptionReplacesTheStudys) {
  StudyOptions options = known();
  options.seed = 42;
  const Study study = read(example(), options);
  EXPECT_EQ(study.cases[0].documents.seed, 42);
  EXPECT_EQ(study.resolved["documents"]["seed"], 42);
}

TEST(Study, ShippedOnesAreValidAndResolveToThemselves) {
  const std::vector<std::string> names = list_data_names(DataKind::kStudy);
  EXPECT_THAT(names, IsSupersetOf({"four-way-h200", "four-way-h200-1024", "tiny-two-nodes", "validate-64k-p8"}));
  for (const std::string& name : names) {
    const Expected<Study> study = read_study(name, known_to_shipped());
    ASSERT_TRUE(study) << name << ": " << testing::PrintToString(texts(study.error()));
    EXPECT_EQ(study->name, name);
    EXPECT_EQ(read(study->resolved, known_to_shipped()).resolved.dump(), study->resolved.dump()) << name;
  }
}

// The issue's default study and its 1,024-GPU sister, fact by fact.
TEST(Study, FourWayStudies) {
  const Study small = *read_study("four-way-h200", known());
  ASSERT_EQ(small.cases.size(), 2u);
  for (const StudyCase& one : small.cases) {
    EXPECT_EQ(one.gpus, 16);
    EXPECT_EQ(one.documents.context_tokens, 131072);
    EXPECT_EQ(one.training.zero_stage, 3);
    EXPECT_EQ(one.training.recompute, Recompute::kFull);
    for (const StrategyEntry& entry : one.strategies) {
      const bool pair = entry.name == "ulysses" || entry.name == "basp";
      EXPECT_EQ(entry.micro_batch_sequences, pair ? 2 : 1) << entry.label;
    }
  }
  EXPECT_EQ(small.cases[1].objective.block_tokens, 32);
  const Study large = *read_study("four-way-h200-1024", known());
  EXPECT_EQ(large.cases[0].gpus, 1024);
  EXPECT_EQ(large.cases[0].documents.context_tokens, 1048576);
  EXPECT_EQ(large.cases[0].documents.sequences, 64);
  for (const StudyCase& one : large.cases) {
    for (const StrategyEntry& entry : one.strategies) {
      const Layout& d = entry.layout.degrees;
      EXPECT_EQ(d.pp.value_or(1) * d.cp.value_or(1) * d.sp.value_or(1) * d.dp.value_or(1), 1024) << entry.label;
    }
  }
}

// A resolved study needs no file of the user's: model, lengths, documents and topology given by path are taken in.
// What-ifs stand in the resolved study as they were written; a base that is a file is taken in.
TEST(Study, WhatIfsOfTheTopology) {
  Json study = example();
  study["gpus"] = 16;
  study["topology"] = {{"base", "dgx-h200-ndr"}, {"what_if", {{{"links", "n1.nic3"}, {"down", true}}}}};
  const Study read_study = read(study);
  EXPECT_EQ(read_study.resolved["topology"], study["topology"]);
  ASSERT_EQ(read_study.cases[0].topology.what_ifs.size(), 1u);
  EXPECT_TRUE(read_study.cases[0].topology.what_ifs[0].down);
  const std::string base = testing::TempDir() + "what_if_base.json";
  std::ofstream(base) << R"({"base": "dgx-h200-ndr", "nodes": 4, "what_if": [{"rail": 1, "scale_bandwidth": 0.5}]})";
  study["topology"] = {{"base", base}, {"scale_network", 2}};
  EXPECT_EQ(read(study).resolved["topology"].dump(),
            R"({"base":"dgx-h200-ndr","nodes":4,"what_if":[{"rail":1,"scale_bandwidth":0.5}],"scale_network":2})");
  EXPECT_EQ(read(study).cases[0].topology.nodes, 4);
}

TEST(Study, PathsAreTakenIn) {
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "my-model.json") << R"({"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8,
                                                 "num_hidden_layers": 2, "vocab_size": 97})";
  std::ofstream(folder + "my-lengths.csv") << "quantile,tokens\n0,1\n1,100\n";
  std::ofstream(folder + "my-documents.txt") << "64\n30\n50\n";
  std::ofstream(folder + "my-topology.json") << R"({"base": "dgx-h200-ndr", "nodes": 4})";
  Json value = example();
  value["model"] = "my-model.json";
  value["topology"] = "my-topology.json";
  value["training"]["micro_batch_sequences"] = 1;
  value["cases"] = {
      {{"name", "sampled"}, {"documents", {{"lengths", "my-lengths.csv"}, {"context_tokens", 64}, {"sequences", 4}}}},
      {{"name", "listed"}, {"documents", {{"file", "my-documents.txt"}, {"context_tokens", 64}}}}};
  const Expected<Study> study = parse_study(value, folder + "study.json", known());
  ASSERT_TRUE(study) << testing::PrintToString(texts(study.error()));
  EXPECT_EQ(study->cases[0].model.name, "my-model");
  EXPECT_EQ(study->cases[0].topology.nodes, 4);
  const Study again = read(study->resolved);
  EXPECT_EQ(again.resolved.dump(), study->resolved.dump());
  EXPECT_EQ(again.cases.at(0).model.name, "my-model");
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(make_batch(again.cases.at(i).documents, {}, 0).documents,
              make_batch(study->cases[i].documents, {}, 0).documents);
  }
  EXPECT_THAT(make_batch(again.cases.at(1).documents, {}, 0).documents, ElementsAre(64, 30, 34));
  EXPECT_EQ(study->resolved.dump().find(folder), std::string::npos) << "no place of this machine in results";
}

}  // namespace
}  // namespace longhaul
