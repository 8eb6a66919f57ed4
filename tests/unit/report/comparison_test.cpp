// Runs that are made of predictions come out as predicted; what is changed on purpose is found and named.
#include "validate/report/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tests/unit/report/small_case.h"
#include "validate/report/idle_time.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

struct Fixture {
  Prepared prepared = small_case();
  Prediction prediction = predict_run(*prepared->setup, prepared->planned);

  RunRecord run(const std::function<double(const PredictedOp&)>& factor = nullptr, const Noise& noise = {},
                int repeats = 20) const {
    return synthetic_run(prediction, noise, repeats, 1, factor);
  }
  Comparison compare(const RunRecord& record) const {
    const ComposedStep composed = compose_step(*prepared->setup, prediction, record, kMeasuredConfidence);
    return compare_run(prediction, record, &composed);
  }
};

const Fixture& fixture() {
  static const Fixture one;
  return one;
}

const ComparedRow& row_of(const std::vector<ComparedRow>& rows, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
  if (found == rows.end()) throw std::runtime_error("no row " + name);
  return *found;
}

// The middle one of all ranks' steps, those that a device could not tell left out; else what was read before them.
TEST(Comparison, TheClockIsThatOfTheSteps) {
  RunRecord record = fixture().run(nullptr, {}, 2);
  record.hardware.sm_clock_before_mhz = 1980;
  EXPECT_EQ(fixture().compare(record).clock_mhz(), 1980);
  for (RankRun& run : record.rank_runs) run.clock_mhz = {0, 1500 + 10 * run.rank};
  const Comparison of = fixture().compare(record);
  EXPECT_EQ(of.step_clock_mhz, 1520);  // of 1500, 1510, 1520, 1530: the upper middle
  EXPECT_EQ(of.clock_mhz(), 1520);
}

// A kernel's prediction is rounded to a picosecond once, its measured time to the picosecond: nothing is lost.
TEST(Comparison, ARunAsPredictedHasNoError) {
  const RunRecord record = fixture().run();
  ASSERT_TRUE(record_faults(fixture().prediction, record, {"run.json", ""}).empty());
  const Comparison of = fixture().compare(record);
  ASSERT_FALSE(of.kinds.empty());
  for (const auto* rows : {&of.kinds, &of.rank_compute}) {
    for (const ComparedRow& row : *rows) {
      EXPECT_NEAR(row.error(), 0, 1e-9) << row.name;
      EXPECT_TRUE(row.inside()) << row.name;
    }
  }
  EXPECT_EQ(of.rank_compute.size(), 4U);
  for (const ComparedRow& row : of.peak_memory) EXPECT_EQ(row.error(), 0);
  // Shares of op kinds sum to the whole.
  double share = 0;
  for (const ComparedRow& row : of.kinds) share += row.share;
  EXPECT_NEAR(share, 1, 1e-9);
}

// A call of a group takes its members equally long, from the call of the last one on: what the others waited is not it.
TEST(Prediction, ACollectiveCountsFromTheCallOfItsLastMember) {
  std::map<std::pair<GroupId, Time>, Time> last;  // by group and end
  bool some_wait = false;
  for (const OpRecord& record : fixture().prediction.timeline.ops) {
    if (record.kind != OpKind::kCollective) continue;
    const auto [at, first] = last.try_emplace({record.group, record.end}, record.called);
    some_wait |= !first && at->second != record.called;
    at->second = std::max(at->second, record.called);
  }
  EXPECT_TRUE(some_wait);
  for (const PredictedOp& op : fixture().prediction.ops) {
    if (op.kind != OpKind::kCollective) continue;
    EXPECT_EQ(op.time, op.end - last.at({op.group, op.end})) << op.label << " of rank " << op.rank;
    EXPECT_EQ(op.low, op.time);
    EXPECT_EQ(op.high, op.time);
  }
}

TEST(Comparison, TheComposedStepOfAsPredictedKernelsIsThePredictedStep) {
  const Comparison of = fixture().compare(fixture().run());
  EXPECT_EQ(of.step.source, Source::kComposed);
  EXPECT_DOUBLE_EQ(of.step.measured, of.step.predicted);
  EXPECT_DOUBLE_EQ(of.exposed_communication.measured, of.exposed_communication.predicted);
  ASSERT_FALSE(of.remarks.empty());
  EXPECT_THAT(of.remarks.front(), HasSubstr("4 virtual ranks on one device"));
  EXPECT_THAT(of.remarks.front(), HasSubstr("communication was not measured"));
  // Transfers between virtual ranks are the model's alone.
  for (const ComparedRow& row : of.collectives) EXPECT_EQ(row.source, Source::kModel);
}

TEST(Comparison, SlowKernelsShowInTheirRowsAndLengthenTheStep) {
  const auto slow = [](const PredictedOp& op) { return op.kind == OpKind::kAttention ? 1.25 : 1.0; };
  const Comparison of = fixture().compare(fixture().run(slow));
  // Times are whole picoseconds: a call of a few microseconds is off by up to 1e-7 of it.
  EXPECT_NEAR(row_of(of.kinds, "attention forward").error(), 1 / 1.25 - 1, 1e-7);
  EXPECT_NEAR(row_of(of.kinds, "attention backward").error(), 1 / 1.25 - 1, 1e-7);
  EXPECT_NEAR(row_of(of.kinds, "gemm forward").error(), 0, 1e-9);
  EXPECT_GT(of.step.measured, of.step.predicted);
  ASSERT_FALSE(of.worst.sites.empty());
  EXPECT_EQ(of.worst.sites.front().kind, "attention");
}

TEST(Comparison, TheWorstOpsShareWhatWasChanged) {
  const auto slow = [](const PredictedOp& op) { return op.kind == OpKind::kElementwise ? 3.0 : 1.0; };
  const Comparison of = fixture().compare(fixture().run(slow));
  ASSERT_EQ(of.worst.sites.size(), 10U);
  for (const ComparedSite& site : of.worst.sites) EXPECT_EQ(site.kind, "elementwise") << site.label;
  const auto& traits = of.worst.traits;
  const auto kind = std::find_if(traits.begin(), traits.end(), [](const Trait& one) { return one.name == "kind"; });
  ASSERT_NE(kind, traits.end());
  EXPECT_EQ(kind->value, "elementwise");
  EXPECT_EQ(kind->worst, 10);
}

// Ten sites of 40, all 10 with a trait that 10 have: 1 / C(40, 10). Two of four that have it among ten: no news.
TEST(WorstOps, ChancesAreHypergeometric) {
  std::vector<ComparedSite> sites;
  for (int i = 0; i < 40; ++i) {
    ComparedSite site;
    site.label = "op " + std::to_string(i);
    site.kind = i < 10 ? "bad" : "good";
    site.pass = i % 2 == 0 ? "even" : "odd";
    site.ranks = {0, 1};
    site.row.predicted = 1;
    site.row.measured = i < 10 ? 2 + 0.01 * i : 1.001;
    sites.push_back(site);
  }
  const WorstOps worst = find_worst(sites);
  ASSERT_EQ(worst.sites.size(), 10U);
  EXPECT_EQ(worst.sites.front().label, "op 9");  // the largest difference first
  ASSERT_EQ(worst.traits.size(), 1U);            // parity is shared by half of both
  EXPECT_EQ(worst.traits.front().value, "bad");
  EXPECT_NEAR(worst.traits.front().chance / (1 / 847660528.0), 1, 1e-6);  // C(40, 10) = 847,660,528
  sites.resize(4);
  EXPECT_TRUE(find_worst(sites).traits.empty());
}

TEST(RecordFaults, AnotherScheduleIsOneError) {
  RunRecord record = fixture().run();
  record.identity.fingerprint ^= 1;
  record.identity.strategy = "dpp";
  record.identity.study = "small";
  const Errors errors = record_faults(fixture().prediction, record, {"run.json", "/record"});
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors.front().path, "/record/identity/fingerprint");
  EXPECT_THAT(errors.front().to_string(),
              HasSubstr("is another schedule (written by Longhaul 0.1.0 of 2026-01-02, dpp on study small)"));
  EXPECT_THAT(errors.front().to_string(), HasSubstr("measure again if the strategy changed"));
}

TEST(RecordFaults, MissingAndForeignOpsAreNamedAndCounted) {
  RunRecord record = fixture().run();
  const MeasuredOp gone = record.ops[3];
  record.ops.erase(record.ops.begin() + 3);
  record.ops[5].label = "something else";
  const Errors errors = record_faults(fixture().prediction, record, {"run.json", ""});
  ASSERT_EQ(errors.size(), 3U);  // the changed op is foreign, and the op that it should be is missing
  EXPECT_EQ(errors[0].path, "");
  EXPECT_THAT(errors[0].message, HasSubstr("`something else`, which the schedule does not have there"));
  EXPECT_EQ(errors[1].path, "");
  EXPECT_THAT(errors[1].message,
              HasSubstr("lacks op " + std::to_string(gone.position) + " of rank 0, `" + gone.label + "`"));

  record = fixture().run();
  const std::size_t all = record.ops.size();
  record.ops.clear();
  const Errors many = record_faults(fixture().prediction, record, {"run.json", ""});
  ASSERT_EQ(many.size(), 11U);
  EXPECT_EQ(many.back().message, std::to_string(all - 10) + " more ops are missing");
}

TEST(RecordFaults, ExclusionsExcuseTheirOpsOnly) {
  RunRecord record = fixture().run();
  const MeasuredOp gone = record.ops[3];
  record.ops.erase(record.ops.begin() + 3);
  record.exclusions.push_back({-1, -1, "numerics", "says nothing of ops"});
  EXPECT_EQ(record_faults(fixture().prediction, record, {"run.json", ""}).size(), 1U);
  record.exclusions.push_back({gone.rank, gone.position, gone.label, "unsupported here"});
  EXPECT_TRUE(record_faults(fixture().prediction, record, {"run.json", ""}).empty());
  const Comparison of = fixture().compare(record);
  EXPECT_TRUE(std::any_of(of.remarks.begin(), of.remarks.end(), [](const std::string& line) {
    return line.find("1 of ") == 0 && line.find("left out of the run") != std::string::npos;
  }));
}

TEST(RecordFaults, RanksAndRepeats) {
  RunRecord record = fixture().run();
  record.ranks = 3;
  record.repeats = 0;
  const Errors errors = record_faults(fixture().prediction, record, {"run.json", ""});
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_EQ(errors[0].to_string(), "run.json: /ranks: is 3; expected 4, the ranks of the schedule");
  EXPECT_EQ(errors[1].to_string(), "run.json: /repeats: is 0; expected at least one timed repeat");
}

TEST(Comparison, DriftIsTold) {
  Noise noise;
  noise.drift = 0.06;  // medians of the outer thirds: 1.0207 and 0.9793
  const Comparison of = fixture().compare(fixture().run(nullptr, noise, 30));
  EXPECT_TRUE(std::any_of(of.remarks.begin(), of.remarks.end(), [](const std::string& line) {
    return line.find("drifted by +4.2 %") != std::string::npos;
  })) << of.remarks.back();
}

TEST(IdleTime, OfCommunicationWithoutCompute) {
  RunRecord record;
  record.repeats = 1;
  const auto add = [&](OpKind kind, StreamId stream, std::int64_t start, std::int64_t end) {
    MeasuredOp op;
    op.kind = kind;
    op.stream = stream;
    op.start_ps = {start};
    op.end_ps = {end};
    record.ops.push_back(op);
  };
  EXPECT_TRUE(idle_in_communication(record, 0).empty());
  add(OpKind::kGemm, kComputeStream, 0, 100);
  add(OpKind::kCollective, 3, 50, 200);  // 100 behind the kernel, 30 of them under the next
  add(OpKind::kGemm, kComputeStream, 170, 300);
  add(OpKind::kCollective, 4, 60, 120);  // beside the first collective
  ASSERT_EQ(idle_in_communication(record, 0).size(), 1U);
  EXPECT_NEAR(idle_in_communication(record, 0).front(), 70e-12, 1e-15);  // 100 .. 170
}

}  // namespace
}  // namespace longhaul
