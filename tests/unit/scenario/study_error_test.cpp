// Every error text of a study, and that all faults are reported at once.
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "sim/core/data_files.h"
#include "tests/unit/scenario/study_fixture.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kStrategies =
    "expected one of data-parallel, allgather-cp, zigzag-cp, per-doc-cp, flashcp, ulysses, basp, 1f1b, seq1f1b, dpp, "
    "bd-offset-cp, csbp";

TEST(StudyErrors, NoneInTheExample) { EXPECT_THAT(faults(example()), IsEmpty()); }

TEST(StudyErrors, EveryMissingKeyAtOnce) {
  EXPECT_THAT(
      faults(Json::object()),
      ElementsAre(
          "study.json: /schema: is missing; expected one of study/1",
          "study.json: /name: is missing; expected a string",
          "study.json: /topology: is missing; expected a shipped topology's name, a path, or an object",
          "study.json: /gpus: is missing; expected the number of GPUs",
          "study.json: /model: is missing; expected a shipped model's name, the path of a config.json, or an object",
          "study.json: /documents: is missing; expected an object with \"lengths\", \"explicit\" or \"file\"",
          "study.json: /strategies: is missing; expected a list of strategies"));
  EXPECT_THAT(faults(Json::array()), ElementsAre("study.json: is a list of 0; expected an object"));
}

// The fixture has a fault of every kind that users make; each is named once, with place, expectation and nearest name.
TEST(StudyErrors, EveryFaultOfABadStudy) {
  const std::string folder = LONGHAUL_FIXTURES;
  const Expected<Study> study = read_study(folder + "/bad-study.json", known());
  ASSERT_FALSE(study);
  std::vector<std::string> found;
  for (std::string text : texts(study.error())) {
    EXPECT_EQ(text.rfind(folder + "/", 0), 0u) << text;
    found.push_back(text.substr(folder.size() + 1));
  }
  EXPECT_THAT(
      found,
      testing::UnorderedElementsAre(
          "bad-study.json: /objectve: unknown key; did you mean \"objective\"?",
          HasSubstr("bad-study.json: /topology: unknown topology \"dgx-h200-ndrr\"; expected one of"),
          "bad-study.json: /gpus: is \"sixteen\"; expected an integer from 1 to 1048576",
          HasSubstr("bad-study.json: /model: unknown model \"llama3-9b\"; expected one of llama-7b, llama3-8b,"),
          "bad-lengths.csv: line 1: is \"lengths\"; expected the header \"quantile,tokens\" of a length table (named "
          "at " +
              folder + "/bad-study.json: /documents/lengths)",
          "bad-study.json: /documents/context_tokens: is -131072; expected an integer from 1 to 134217728",
          "bad-study.json: /documents/sed: unknown key; did you mean \"seed\"?",
          "bad-study.json: /training/optimizer: is \"adam\"; expected one of adamw; did you mean \"adamw\"?",
          "bad-study.json: /training/zero_stage: is 2; expected 0 or 3",
          "bad-study.json: /training/recompute: is \"ful\"; expected one of full, none; did you mean \"full\"?",
          "bad-study.json: /training/micro_batch_sequences: is 0; expected an integer from 1 to 1048576",
          "bad-study.json: /layout/tp: is 8; expected 1; tensor parallelism comes with later work",
          "bad-study.json: /layout/cp: is 1000000000000; expected an integer from 1 to 1048576",
          "bad-study.json: /strategies/1: unknown strategy \"flashpc\"; " + kStrategies + "; did you mean \"flashcp\"?",
          "bad-study.json: /strategies/2: has the label \"allgather-cp\" of /strategies/0; expected a \"label\" of its "
          "own",
          "bad-study.json: /strategies/3/name: is missing; " + kStrategies,
          "bad-study.json: /strategies/4: is 7; expected a strategy's name, or an object with \"name\"",
          "bad-study.json: /strategies/5/layout: is \"bestt\"; expected \"best\", or an object of degrees; did you "
          "mean "
          "\"best\"?",
          HasSubstr("bad-study.json: /baseline: \"allgather\" names no strategy of the study; expected one of "
                    "allgather-cp; did you mean \"allgather-cp\"?")));
}

TEST(StudyErrors, UnknownStudy) {
  const Expected<Study> study = read_study("four-way-h20", known());
  ASSERT_FALSE(study);
  EXPECT_THAT(
      texts(study.error()),
      ElementsAre(fmt::format("four-way-h20: unknown study \"four-way-h20\"; expected one of {}, or a path; did "
                              "you mean \"four-way-h200\"?",
                              fmt::join(list_data_names(DataKind::kStudy), ", "))));
  EXPECT_THAT(texts(read_study("no/such.json", known()).error()),
              ElementsAre("no/such.json: cannot be read; expected a JSON file"));
}

TEST(StudyErrors, SchemaAndName) {
  EXPECT_THAT(faults(with(example(), "/schema", "study/2")),
              ElementsAre("study.json: /schema: is \"study/2\"; expected one of study/1; did you mean \"study/1\"?"));
  EXPECT_THAT(
      faults(with(example(), "/name", "a b")),
      ElementsAre("study.json: /name: is \"a b\"; expected up to 100 letters, digits and . _ -, no leading dot"));
  EXPECT_THAT(faults(with(example(), "/name", "../up")), ElementsAre(HasSubstr("/name: is \"../up\"")));
  EXPECT_THAT(faults(with(example(), "/name", "")),
              ElementsAre("study.json: /name: is empty; expected up to 100 letters, digits and . _ -, no leading dot"));
}

TEST(StudyErrors, GpusOfTheTopology) {
  EXPECT_THAT(faults(with(example(), "/gpus", 12)),
              ElementsAre("study.json: /gpus: is 12; expected at most 8 GPUs, or a multiple of the 8 of a node of "
                          "dgx-h200-ndr: 8 or 16"));
  EXPECT_THAT(faults(with(with(example(), "/topology", "a100-40gb-2x4"), "/gpus", 16)),
              ElementsAre(HasSubstr("study.json: /gpus: is 16; expected at most 8 GPUs, all that ")));
  EXPECT_THAT(faults(with(example(), "/gpus", -8)),
              ElementsAre("study.json: /gpus: is -8; expected an integer from 1 to 1048576"));
  EXPECT_THAT(faults(with(example(), "/gpus", 8.5)),
              ElementsAre("study.json: /gpus: is 8.5; expected an integer from 1 to 1048576"));
  EXPECT_THAT(faults(with(example(), "/topology", 3)),
              ElementsAre("study.json: /topology: is 3; expected a topology name, a path, or an object"));
}

// What only the cluster of the case can tell is said at the what-if, not at the GPU count.
TEST(StudyErrors, WhatIfsOfTheTopology) {
  Json study = example();
  study["gpus"] = 16;
  study["topology"] = {{"base", "dgx-h200-ndr"},
                       {"what_if", {{{"links", "n2.nic3"}, {"down", true}}, {{"rail", 8}, {"scale_latency", 2}}}}};
  EXPECT_THAT(
      faults(study),
      ElementsAre("study.json: /topology/what_if/0/links: \"n2.nic3\" names no link of this cluster; expected a "
                  "name or a pattern of its 64 links, such as \"n0.g0.nvl>\" or \"n1.nic7<\"; did you mean "
                  "\"n0.nic3>\"?",
                  "study.json: /topology/what_if/1/rail: there is no rail 8; expected 0 to 7"));
}

TEST(StudyErrors, Objective) {
  EXPECT_THAT(faults(with(example(), "/objective", {{"kind", "causal"}})),
              ElementsAre(HasSubstr("/objective/kind: is \"causal\"; expected one of causal-lm, block-diffusion")));
  EXPECT_THAT(faults(with(example(), "/objective", {{"kind", "block-diffusion"}})),
              ElementsAre("study.json: /objective/block_tokens: is missing; expected an integer from 1 to 134217728"));
  EXPECT_THAT(faults(with(example(), "/objective", {{"kind", "causal-lm"}, {"block_tokens", 32}})),
              ElementsAre("study.json: /objective/block_tokens: is given for a causal-lm objective; expected nothing; "
                          "blocks belong to block-diffusion"));
  EXPECT_THAT(faults(with(example(), "/objective", "causal-lm")),
              ElementsAre("study.json: /objective: is \"causal-lm\"; expected an object"));
}

TEST(StudyErrors, Overlap) {
  EXPECT_THAT(faults(with(example(), "/overlap", {{"slowdown", "non"}, {"scale", -1}, {"factor", 2}})),
              ElementsAre("study.json: /overlap/slowdown: is \"non\"; expected one of calibrated, none; did you mean "
                          "\"none\"?",
                          "study.json: /overlap/scale: is -1; expected a number from 0 to 100",
                          HasSubstr("study.json: /overlap/factor: unknown key")));
  EXPECT_THAT(faults(with(example(), "/overlap", {{"slowdown", "none"}, {"scale", 1}})),
              ElementsAre("study.json: /overlap/scale: is given without a slowdown; expected nothing; it scales the "
                          "calibrated slowdown"));
  EXPECT_THAT(faults(with(example(), "/overlap", "none")),
              ElementsAre("study.json: /overlap: is \"none\"; expected an object"));
}

TEST(StudyErrors, AttentionLibrary) {
  EXPECT_THAT(
      faults(with(example(), "/attention_library", "flash-attention")),
      ElementsAre("study.json: /attention_library: is \"flash-attention\"; expected one of cudnn, "
                  "flash-attention-2, flash-attention-3, flex-flash-attention; did you mean \"flash-attention-2\"?"));
  EXPECT_THAT(faults(with(example(), "/attention_library", 2)),
              ElementsAre(HasSubstr("study.json: /attention_library: is 2")));
  EXPECT_THAT(faults(with(with(example(), "/topology", "dgx-a100-hdr"), "/attention_library", "flash-attention-3")),
              ElementsAre("study.json: /attention_library: \"flash-attention-3\" has no constants for the GPUs of the "
                          "topology; expected GPUs of a generation among hopper"));
  EXPECT_THAT(faults(with(with(example(), "/topology", "dgx-a100-hdr"), "/attention_library", "flash-attention-2")),
              ElementsAre());
  const Json row = {{"name", "allgather-cp"}, {"attention_library", "flash-attention-3"}};
  EXPECT_THAT(faults(with(with(example(), "/topology", "dgx-a100-hdr"), "/strategies/0", row)),
              ElementsAre("study.json: /strategies/0/attention_library: \"flash-attention-3\" has no constants for the "
                          "GPUs of the topology; expected GPUs of a generation among hopper"));
  EXPECT_THAT(faults(with(with(example(), "/strategies/0", row), "/strategies/0/attention_library", "cudn")),
              ElementsAre("study.json: /strategies/0/attention_library: is \"cudn\"; expected one of cudnn, "
                          "flash-attention-2, flash-attention-3, flex-flash-attention; did you mean \"cudnn\"?"));
}

TEST(StudyErrors, Training) {
  const auto training = [](const char* key, const Json& value) {
    return faults(with(example(), std::string("/training/") + key, value));
  };
  EXPECT_THAT(training("zero_stage", 4), ElementsAre("study.json: /training/zero_stage: is 4; expected 0 or 3"));
  EXPECT_THAT(training("zero_stage", 1), ElementsAre("study.json: /training/zero_stage: is 1; expected 0 or 3"));
  EXPECT_THAT(training("zero_stage", "3"), ElementsAre("study.json: /training/zero_stage: is \"3\"; expected 0 or 3"));
  EXPECT_THAT(training("dtype", "fp8"), ElementsAre("study.json: /training/dtype: is \"fp8\"; expected one of bf16"));
  EXPECT_THAT(training("scope", "steps"),
              ElementsAre("study.json: /training/scope: is \"steps\"; expected one of step, forward-backward, layers, "
                          "attention; did you mean \"step\"?"));
  EXPECT_THAT(training("passes", {"backward"}),
              ElementsAre("study.json: /training/passes: is [\"backward\"]; expected [\"forward\"] or [\"forward\", "
                          "\"backward\"]"));
  EXPECT_THAT(training("passes", {"forward"}),
              ElementsAre("study.json: /training/passes: leave out the backward pass; expected scope \"layers\" or "
                          "\"attention\" for that"));
  EXPECT_THAT(training("zero", 3),
              ElementsAre("study.json: /training/zero: unknown key; did you mean \"zero_stage\"?"));
}

TEST(StudyErrors, Layout) {
  const auto layout = [](const Json& value) { return faults(with(example(), "/layout", value)); };
  EXPECT_THAT(layout({{"ep", 2}}),
              ElementsAre("study.json: /layout/ep: is 2; expected 1; expert parallelism comes with later work"));
  EXPECT_THAT(layout({{"cp", 16}}), ElementsAre("study.json: /layout/cp: is 16; expected an integer from 1 to 8"));
  EXPECT_THAT(layout({{"cp", 0}}), ElementsAre("study.json: /layout/cp: is 0; expected an integer from 1 to 8"));
  EXPECT_THAT(
      layout({{"cp", 4}, {"dp", 4}}),
      ElementsAre("study.json: /layout: cp 4 x dp 4 make 16 ranks; expected degrees whose product divides the 8 "
                  "GPUs"));
  EXPECT_THAT(layout({{"pp", 3}}),
              ElementsAre("study.json: /layout: pp 3 make 3 ranks; expected degrees whose product divides the 8 GPUs"));
  EXPECT_THAT(layout(4), ElementsAre("study.json: /layout: is 4; expected \"best\", or an object of degrees"));
  EXPECT_THAT(layout({{"cpp", 4}}), ElementsAre("study.json: /layout/cpp: unknown key; did you mean \"cp\"?"));
}

TEST(StudyErrors, Strategies) {
  EXPECT_THAT(faults(with(without(example(), "baseline"), "/strategies", Json::array())),
              ElementsAre("study.json: /strategies: is a list of 0; expected a list of strategies"));
  EXPECT_THAT(faults(with(without(example(), "baseline"), "/strategies", {{{"name", "flashcp"}, {"label", ""}}})),
              ElementsAre("study.json: /strategies/0/label: is empty; expected a name for the row"));
  EXPECT_THAT(
      faults(with(example(), "/strategies/0", {{"name", "allgather-cp"}, {"micro_batch_sequences", -2}})),
      ElementsAre("study.json: /strategies/0/micro_batch_sequences: is -2; expected an integer from 1 to 1048576"));
  EXPECT_THAT(
      faults(with(example(), "/strategies/1", {{"name", "basp"}, {"label", "dpp"}})),
      ElementsAre("study.json: /strategies/5: has the label \"dpp\" of /strategies/1; expected a \"label\" of its "
                  "own"));
}

TEST(StudyErrors, Labels) {
  const auto label = [](const std::string& text) {
    return faults(with(example(), "/strategies/1", {{"name", "per-doc-cp"}, {"label", text}}));
  };
  const std::string expected = "; expected at most 64 characters, none of them control characters";
  EXPECT_THAT(label(std::string(64, 'x')), IsEmpty());
  EXPECT_THAT(label(std::string(65, 'x')),
              ElementsAre("study.json: /strategies/1/label: is \"" + std::string(65, 'x') + "\"" + expected));
  EXPECT_THAT(label("a\nb"), ElementsAre("study.json: /strategies/1/label: is \"a\\nb\"" + expected));
}

TEST(StudyErrors, ABaselineIsOfferedValidLabelsOnly) {
  const Json study = with(with(example(), "/strategies/2", "flashpc"), "/baseline", "flash");
  EXPECT_THAT(faults(study),
              testing::Contains("study.json: /baseline: \"flash\" names no strategy of the study; expected "
                                "one of allgather-cp, per-doc-cp, ulysses, basp, dpp"));
  const Json none = with(with(example(), "/strategies", {"flashpc"}), "/baseline", "flash");
  EXPECT_THAT(faults(none), ElementsAre(HasSubstr("/strategies/0: unknown strategy \"flashpc\"")));
  EXPECT_THAT(faults(with(none, "/baseline", "flashpc")).size(), 1u);
}

TEST(StudyErrors, AFaultyFileSaysWhereItIsNamed) {
  EXPECT_THAT(faults(with(example(), "/model", "no/m.json")),
              ElementsAre("no/m.json: cannot be read; expected a JSON file (named at study.json: /model)"));
  EXPECT_THAT(faults(with(example(), "/documents", {{"file", "/dev/zero"}, {"context_tokens", 4096}})),
              ElementsAre("/dev/zero: is not a regular file; expected a file of document lengths (named at study.json: "
                          "/documents/file)"));
  EXPECT_THAT(faults(with(example(), "/documents/lengths", "no/l.csv")),
              ElementsAre("no/l.csv: cannot be read; expected a length table (named at study.json: "
                          "/documents/lengths)"));
}

TEST(StudyErrors, PolicyOptionsAreCheckedWithTheRest) {
  StudyOptions options = known();
  options.check_strategy = [](const StrategyEntry& entry, Errors& errors) {
    for (const auto& [key, value] : entry.options.items()) {
      errors.push_back({entry.file, entry.path + "/" + key, "unknown option", "", ""});
    }
  };
  EXPECT_THAT(faults(with(example(), "/gpus", 0), options),
              ElementsAre("study.json: /gpus: is 0; expected an integer from 1 to 1048576",
                          "study.json: /strategies/2/imbalance_limit: unknown option"));
}

TEST(StudyErrors, SequencesThatDoNotFill) {
  EXPECT_THAT(faults(with(with(example(), "/documents/sequences", 15), "/strategies", {"allgather-cp"})),
              ElementsAre("study.json: /strategies/0: 15 sequences do not fill dp 1 x micro-batches of 2 for "
                          "\"allgather-cp\"; expected 14 or 16 sequences"));
  const Json entry = {{"name", "allgather-cp"}, {"layout", {{"dp", 8}}}, {"micro_batch_sequences", 4}};
  EXPECT_THAT(faults(with(example(), "/strategies/0", entry)),
              ElementsAre("study.json: /strategies/0: 16 sequences do not fill dp 8 x micro-batches of 4 for "
                          "\"allgather-cp\"; expected 32 sequences"));
}

TEST(StudyErrors, Baseline) {
  EXPECT_THAT(faults(with(example(), "/baseline", "flashpc")),
              ElementsAre("study.json: /baseline: \"flashpc\" names no strategy of the study; expected one of "
                          "allgather-cp, per-doc-cp, flashcp, ulysses, basp, dpp; did you mean \"flashcp\"?"));
  EXPECT_THAT(faults(with(example(), "/baseline", 1)), ElementsAre("study.json: /baseline: is 1; expected a string"));
}

TEST(StudyErrors, Cases) {
  EXPECT_THAT(faults(with(example(), "/cases", Json::array())),
              ElementsAre("study.json: /cases: is a list of 0; expected a list of cases"));
  EXPECT_THAT(faults(with(example(), "/cases", {5})), ElementsAre("study.json: /cases/0: is 5; expected an object"));
  EXPECT_THAT(faults(with(example(), "/cases", {{{"name", "a"}, {"gpu", 8}}, {{"name", "a"}}, Json::object()})),
              ElementsAre("study.json: /cases/0/gpu: unknown key; did you mean \"gpus\"?",
                          "study.json: /cases/2/name: is missing; expected a string",
                          "study.json: /cases/1/name: \"a\" is the name of case 0 too; expected a name of its own"));
}

// A fault of the top level that every case shares is named once; one of a case has the case's path.
TEST(StudyErrors, CasesShareFaultsOnce) {
  Json study = with(example(), "/training/dtype", "fp8");
  study["cases"] = {{{"name", "a"}}, {{"name", "b"}, {"training", {{"zero_stage", 9}}}}};
  EXPECT_THAT(faults(study), ElementsAre("study.json: /training/dtype: is \"fp8\"; expected one of bf16",
                                         "study.json: /cases/1/training/zero_stage: is 9; expected 0 or 3"));
  EXPECT_THAT(faults(with(without(study, "gpus"), "/training/dtype", "bf16")),
              ElementsAre("study.json: /cases/0/gpus: is missing; expected the number of GPUs",
                          "study.json: /cases/1/gpus: is missing; expected the number of GPUs",
                          "study.json: /cases/1/training/zero_stage: is 9; expected 0 or 3"));
}

}  // namespace
}  // namespace longhaul
