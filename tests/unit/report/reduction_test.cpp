// Smaller versions of studies: what is kept, what is written down.
#include "validate/report/reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/study/find_entry.h"
#include "tests/unit/report/small_case.h"
#include "validate/report/reduced_study.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Batch batch_of(const std::vector<std::vector<std::int64_t>>& sequences) { return explicit_batch(sequences, {}); }

TEST(ScaledDocuments, EveryDocumentKeepsItsShare) {
  const Batch batch = batch_of({{4096, 2048, 1024, 1024}, {8192}, {8000, 192}});
  EXPECT_THAT(scaled_documents(batch, 3, 1, 2, 1),
              ElementsAre(ElementsAre(2048, 1024, 512, 512), ElementsAre(4096), ElementsAre(4000, 96)));
  EXPECT_THAT(scaled_documents(batch, 1, 1, 1, 1), ElementsAre(ElementsAre(4096, 2048, 1024, 1024)));
}

TEST(ScaledDocuments, WhatRoundingLeavesGoesToTheLastDocument) {
  // 7 + 7 + 6 = 20 tokens by 1/3: 6 in all, 2 + 2 + 2; by 2/3: 13 in all, 4 + 4 + 4 and one more.
  const Batch batch = batch_of({{7, 7, 6}});
  EXPECT_THAT(scaled_documents(batch, 1, 1, 3, 1), ElementsAre(ElementsAre(2, 2, 2)));
  EXPECT_THAT(scaled_documents(batch, 1, 2, 3, 1), ElementsAre(ElementsAre(4, 4, 5)));
}

TEST(ScaledDocuments, BlocksStayWholeAndCrumbsAreDropped) {
  const Batch batch = batch_of({{96, 32, 32}});
  // 160 by 1/2: 80 -> 64 in blocks of 32; 48 -> 32, then 32, and the third block no longer fits.
  EXPECT_THAT(scaled_documents(batch, 1, 1, 2, 32), ElementsAre(ElementsAre(32, 32)));
}

TEST(ModelConfig, ReadsBackAsTheSameShape) {
  const Prepared prepared = small_case();
  EXPECT_EQ(model_config(prepared->study_case->model)["num_key_value_heads"], 8);
  const Json study = version_study(prepared->study, *prepared->study_case, *prepared->entry,
                                   make_batch(prepared->study_case->documents, {}, 0),
                                   {nullptr, {1, 4, 1, 1}, 2, 32000, 8192, 2048, 1, 4, 1, 1});
  const Expected<Study> read = parse_study(study, "version.json", study_options());
  ASSERT_TRUE(read) << read.error().front().to_string();
  const ModelShape& model = read->cases.front().model;
  EXPECT_EQ(model.hidden, 2048);
  EXPECT_EQ(model.head_dim, 64);
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(read->cases.front().strategies.front().layout.degrees.cp, 4);
}

FittedStudy reduced(const std::string& study_name, const std::string& label, const MachineAtHand& machine,
                    const std::string& case_name = "") {
  const Expected<Study> study = read_study(study_name, study_options());
  const FoundEntry found = *find_entry(*study, label, case_name);
  auto result = reduce_for_machine(*study, *found.study_case, *found.entry, machine);
  if (!result) throw std::runtime_error(result.error());
  return std::move(*result);
}

std::vector<std::string> texts(const FittedStudy& of) {
  std::vector<std::string> lines;
  for (const Change& change : of.changes) lines.push_back(change.text());
  return lines;
}

// llama3-8b on 16 H200, 128K tokens: eight virtual ranks of one H200 (141 GB) keep 8,192 tokens a rank.
TEST(ReduceForMachine, TheDefaultStudyOnOneH200) {
  const MachineAtHand machine{"h200", 8, true, 139'000'000'000};
  const FittedStudy of = reduced("four-way-h200", "flashcp", machine);
  EXPECT_EQ(of.degrees.cp, 8);
  EXPECT_LE(of.peak_bytes, 0.9 * 139e9);
  EXPECT_THAT(texts(of),
              ElementsAre("cp 16 -> 8: 8 virtual ranks here",
                          "nodes 2 -> 1: the ranks left fit into one: transfers between nodes are not part of this run",
                          "sequences 16 -> 1: one micro-batch shows every kernel",
                          "layers 32 -> 2: 2 a stage show every kernel",
                          "context_tokens 131072 -> 65536: 8192 tokens a rank are kept"));
}

TEST(ReduceForMachine, APipelineKeepsItsStages) {
  const FittedStudy of = reduced("four-way-h200", "dpp", {"h200", 8, true, 139'000'000'000});
  EXPECT_EQ(of.degrees.pp, 2);
  EXPECT_EQ(of.degrees.ranks(), 8);
}

TEST(ReduceForMachine, AnotherDeviceIsSaid) {
  const FittedStudy of = reduced("four-way-h200", "flashcp", {"a100-80gb", 4, true, 75'000'000'000});
  EXPECT_EQ(of.degrees.cp, 4);
  // An H200's NVSwitch multicasts, which an A100 cannot: the node is another one too.
  EXPECT_EQ(texts(of)[0], "device h200 -> a100-80gb: the device of this machine");
  EXPECT_EQ(texts(of)[1], "topology dgx-h200-ndr -> aws-p4de: the first shipped one with that device");
  const FittedStudy hopper = reduced("four-way-h200", "flashcp", {"h100", 4, true, 75'000'000'000});
  EXPECT_EQ(texts(hopper)[1].find("topology"), std::string::npos);
}

TEST(ReduceForMachine, AStudyThatFitsStaysAsItIs) {
  const Prepared prepared = small_case();
  const auto of =
      reduce_for_machine(prepared->study, *prepared->study_case, *prepared->entry, {"h200", 4, false, 139'000'000'000});
  ASSERT_TRUE(of) << of.error();
  EXPECT_TRUE(of->changes.empty()) << of->changes.front().text();
  EXPECT_EQ(of->degrees.cp, 4);
}

TEST(ReduceForMachine, ATinyMachineIsRefusedWithNumbers) {
  const Prepared prepared = small_case();
  const auto of =
      reduce_for_machine(prepared->study, *prepared->study_case, *prepared->entry, {"h200", 2, true, 1'000'000});
  ASSERT_FALSE(of);
  EXPECT_THAT(of.error(), HasSubstr("versions needs"));
  EXPECT_THAT(of.error(), HasSubstr("of 1.000 MB only 90 % are planned for"));
}

}  // namespace
}  // namespace longhaul
