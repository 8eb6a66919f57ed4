#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/strategies/pipeline/report.h"

namespace longhaul {
namespace {

PipelineRequest request(const char* schedule, std::int64_t stages, std::int64_t microbatches) {
  PipelineRequest request;
  request.schedule = schedule;
  request.stages = stages;
  request.microbatches = microbatches;
  request.forward_us = 1;
  request.backward_input_us = 1;
  request.backward_weight_us = 1;
  return request;
}

std::vector<std::string> error_texts(const PipelineRequest& request) {
  const Expected<PipelineReport> report = report_pipeline(request);
  std::vector<std::string> texts;
  if (!report) {
    for (const InputError& error : report.error()) texts.push_back(error.to_string());
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(PipelineReport, OneFOneBIsTheTablesBubbleRate) {
  const Expected<PipelineReport> report = report_pipeline(request("1f1b", 4, 8));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->makespan_us, 33);                 // (8 + 3) x 3
  EXPECT_DOUBLE_EQ(report->bubble_rate, 3.0 / 11.0);  // (p-1)/(m+p-1), dpp.md 7
  EXPECT_EQ(report->peak_units, (std::vector<double>{4, 3, 2, 1}));
}

// dpp.md 7: bubble (p-1)(F+B+W)/s = 3 x 12 / 4 = 9 us; peaks (p-r-1+s)/s.
TEST(PipelineReport, Seq1F1BDividesTheMicroBatch) {
  PipelineRequest sliced = request("seq1f1b", 4, 8);
  sliced.forward_us = sliced.backward_input_us = sliced.backward_weight_us = 4;
  sliced.slices = {4};
  const Expected<PipelineReport> report = report_pipeline(sliced);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->makespan_us, 8 * 12 + 9);
  EXPECT_DOUBLE_EQ(report->bubble_rate, 9.0 / 105.0);
  EXPECT_EQ(report->peak_units, (std::vector<double>{1.75, 1.5, 1.25, 1}));
}

// Thirds of 1 us are not whole picoseconds: the parts still sum to the whole, so the makespan of one stage is exact.
TEST(PipelineReport, SlicesSumToTheMicroBatchExactly) {
  PipelineRequest sliced = request("seq1f1b", 1, 2);
  sliced.slices = {3};
  EXPECT_EQ(report_pipeline(sliced)->makespan_us, 6);
  EXPECT_EQ(report_pipeline(sliced)->bubble_rate, 0);
}

// dpp.md 4.2's second vector; the counts are put in descending order first (4.1).
TEST(PipelineReport, DppTakesOneCountASequence) {
  PipelineRequest dpp = request("dpp", 4, 8);
  dpp.microbatches.reset();
  dpp.slices = {1, 1, 3, 1, 1, 1};
  const Expected<PipelineReport> report = report_pipeline(dpp);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->makespan_us, 33);
  EXPECT_DOUBLE_EQ(report->bubble_rate, 9.0 / 33.0);
  EXPECT_EQ(report->peak_units, (std::vector<double>{6, 5, 4, 3}));
  EXPECT_EQ(report->request.slices, (std::vector<std::int64_t>{3, 1, 1, 1, 1, 1}));
  for (const std::int64_t sum_or_sequences : {8, 6}) {
    dpp.microbatches = sum_or_sequences;
    EXPECT_EQ(report_pipeline(dpp)->makespan_us, 33);
  }
}

TEST(PipelineReport, JsonHasTheContractsKeysAndTheOpList) {
  PipelineRequest dpp = request("dpp", 2, 3);
  dpp.slices = {2, 1};
  const nlohmann::ordered_json json = pipeline_report_json(*report_pipeline(dpp));
  EXPECT_EQ(json["makespan_us"], 12.0);  // (3 + 1) x 3
  EXPECT_EQ(json["bubble_rate"], 0.25);
  EXPECT_EQ(json["peak_units"].dump(), "[3.0,2.0]");
  EXPECT_EQ(json["busy_us"].dump(), "[9.0,9.0]");
  ASSERT_EQ(json["ops"].size(), 2u);
  ASSERT_EQ(json["ops"][0].size(), 6u);
  // Stage 1 warms up one forward, then F1 B1 F2 B0 B2; its first backward is slice 1 of sequence 0, at 3 us.
  EXPECT_EQ(json["ops"][1][2].dump(), R"({"pass":"backward","microbatch":0,"slice":1,"start_us":3.0,"end_us":5.0})");
}

TEST(PipelineReport, DiagramShowsEveryStageAtScale) {
  const PipelineReport report = *report_pipeline(request("1f1b", 2, 2));
  // Stage 0: F0 0-1, F1 1-2, B0 4-6, B1 7-9. Stage 1: F0 1-2, B0 2-4, F1 4-5, B1 5-7. One column a microsecond.
  EXPECT_EQ(pipeline_diagram(report, 9),
            "stage   0 |01..aa.bb|\n"
            "stage   1 |.0aa1bb..|\n"
            "one column = 1 us; 0-9 forward and a-j backward of chunk number modulo 10; . idle\n");
}

TEST(PipelineReportErrors, EveryFaultAtOnce) {
  PipelineRequest wrong = request("seq1f1", 0, -2);
  wrong.forward_us = -1;
  wrong.p2p_us = 1e12;
  wrong.chunks_per_stage = 2;
  EXPECT_EQ(error_texts(wrong),
            (Texts{"<command line>: --schedule: is \"seq1f1\"; expected one of 1f1b, seq1f1b, dpp; did you mean "
                   "\"seq1f1b\"?",
                   "<command line>: --stages: is 0; expected an integer from 1 to 4096",
                   "<command line>: --microbatches: is -2; expected an integer from 1 to 1000000",
                   "<command line>: --forward-us: is -1; expected microseconds from 0 to 1e9",
                   "<command line>: --p2p-us: is 1000000000000; expected microseconds from 0 to 1e9",
                   "<command line>: --chunks-per-stage: is 2; expected 1: 1f1b, seq1f1b and dpp hold one group of "
                   "layers a stage"}));
}

TEST(PipelineReportErrors, SlicesThatDoNotFitTheSchedule) {
  PipelineRequest plain = request("1f1b", 2, 2);
  plain.slices = {2};
  EXPECT_EQ(error_texts(plain), (Texts{"<command line>: --slices: is 2; expected 1: 1f1b does not slice "
                                       "micro-batches; seq1f1b does"}));
  PipelineRequest several = request("seq1f1b", 2, 2);
  several.slices = {2, 1};
  EXPECT_EQ(error_texts(several), (Texts{"<command line>: --slices: is 2,1; expected one count: seq1f1b cuts every "
                                         "micro-batch alike; dpp takes one count a sequence"}));
  PipelineRequest none = request("dpp", 2, 2);
  EXPECT_EQ(error_texts(none), (Texts{"<command line>: --slices: is missing; expected for dpp, one slice count a "
                                      "sequence, like 3,1,1"}));
  PipelineRequest sum = request("dpp", 2, 7);
  sum.slices = {3, 1};
  EXPECT_EQ(error_texts(sum), (Texts{"<command line>: --microbatches: is 7; expected 4, the sum of --slices (or 2, "
                                     "its sequences; or nothing)"}));
  sum.microbatches = 4;
  sum.slices = {4, 0};
  EXPECT_EQ(error_texts(sum), (Texts{"<command line>: --slices: is 0; expected an integer from 1 to 1000000"}));
  PipelineRequest missing = request("1f1b", 2, 2);
  missing.microbatches.reset();
  EXPECT_EQ(error_texts(missing),
            (Texts{"<command line>: --microbatches: is missing; expected the number of micro-batches"}));
}

TEST(PipelineReportErrors, NothingToDoAndTooMuchToDo) {
  PipelineRequest idle = request("1f1b", 2, 2);
  idle.forward_us = idle.backward_input_us = idle.backward_weight_us = 0;
  EXPECT_EQ(error_texts(idle), (Texts{"<command line>: --forward-us: is 0, and so are --backward-input-us and "
                                      "--backward-weight-us; expected at least one time above 0"}));
  EXPECT_EQ(error_texts(request("1f1b", 4096, 1'000'000)),
            (Texts{"<command line>: --stages: 4096 x 1000000 chunks is too large; expected at most 10000000 "
                   "operations"}));
  PipelineRequest slow = request("1f1b", 100, 1000);
  slow.forward_us = 1e9;
  EXPECT_EQ(error_texts(slow), (Texts{"<command line>: --forward-us: the pipeline could take 1e+14 us; expected at "
                                      "most 9e+12 us in all"}));
}

}  // namespace
}  // namespace longhaul
