// A whole run on a scripted machine: rows as they come, resuming, interrupts, faults and their texts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/unit/calibrate/scripted_bench.h"
#include "validate/gpu/calibrate/plan.h"
#include "validate/gpu/calibrate/run_calibration.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class RunTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    options_.out = (folder_ / "h200.json").string();
    options_.quick = true;
    options_.classes = {CallClass::kGemm, CallClass::kElementwise};
    hooks_.say = [this](const std::string& line) { said_.push_back(line); };
    hooks_.progress = [this](const CalibrationProgress& progress) { shown_.push_back(progress); };
  }

  std::string text(const std::string& suffix) const {
    std::ifstream in(options_.out + suffix, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> rows() const {
    std::vector<std::string> lines;
    std::ifstream in(options_.out + ".rows.csv");
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with("#") && !line.starts_with("class,")) lines.push_back(line);
    }
    return lines;
  }
  Expected<CalibrationOutcome> run() { return run_calibration(options_, bench_, hooks_); }
  std::string limit_of_run() {
    try {
      run();
    } catch (const LimitError& error) {
      return error.what();
    }
    return "no LimitError";
  }

  std::filesystem::path folder_;
  CalibrationOptions options_;
  CalibrationHooks hooks_;
  ScriptedBench bench_;
  std::vector<std::string> said_;
  std::vector<CalibrationProgress> shown_;
};

TEST_F(RunTest, WritesARowACallInTheOrderOfThePlan) {
  const auto outcome = run();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->measured, 24U);
  EXPECT_EQ(outcome->kept, 0U);
  EXPECT_FALSE(outcome->interrupted);
  EXPECT_EQ(outcome->rows_file, options_.out + ".rows.csv");
  const std::vector<CalibrationCall> plan = calibration_plan(options_.classes, true);
  ASSERT_THAT(rows(), SizeIs(plan.size()));
  for (std::size_t i = 0; i < plan.size(); ++i) EXPECT_EQ(bench_.prepared[i], describe(plan[i]));
  EXPECT_THAT(
      text(".rows.csv"),
      HasSubstr("\nclass,op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces,bytes,name,impl,ms_median,"
                "ms_min,ms_max,ms_mean,deviation_percent,samples,dropped,clock_mhz,batch_ms,batch_clock_mhz,stop\n"));
  EXPECT_THAT(text(".rows.csv"), HasSubstr("# device: Scripted GPU, sm_90\n# driver: 1.0\n# method: "));
  // 1 ms a sample: the 40th passes 0.04 s, or the 41st where the sum is rounded down; batches of 1 ms at 1,980 MHz.
  EXPECT_THAT(rows()[0],
              testing::ContainsRegex(",scripted,1.000000,1.000000,1.000000,1.000000,0.000,4[01],0,1900,1.000000,"
                                     "1980,quiet$"));
  // Nothing but rows: the calibration itself is written by who fits them.
  EXPECT_FALSE(std::filesystem::exists(options_.out));
}

TEST_F(RunTest, ResumesWhatWasInterrupted) {
  int asked = 0;
  hooks_.interrupted = [&] { return ++asked > 5; };
  const auto first = run();
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->interrupted);
  EXPECT_EQ(first->measured, 5U);
  EXPECT_THAT(rows(), SizeIs(5));
  const std::string before = text(".rows.csv");

  hooks_.interrupted = [] { return false; };
  const auto refused = run();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error()[0].to_string(), HasSubstr("is there already; expected another file, or --resume"));
  EXPECT_EQ(text(".rows.csv"), before);

  options_.resume = true;
  bench_.prepared.clear();
  const auto second = run();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->kept, 5U);
  EXPECT_EQ(second->measured, 19U);
  EXPECT_THAT(bench_.prepared, SizeIs(19));
  EXPECT_THAT(rows(), SizeIs(24));
  EXPECT_EQ(text(".rows.csv").substr(0, before.size()), before);
}

TEST_F(RunTest, RefusesRowsOfAnotherDeviceOrDriver) {
  ASSERT_TRUE(run());
  const std::string before = text(".rows.csv");
  options_.resume = true;
  bench_.device = "Other GPU, sm_80";
  bench_.driver = "2.0";
  const auto refused = run();
  ASSERT_FALSE(refused);
  ASSERT_THAT(refused.error(), SizeIs(2));
  EXPECT_EQ(refused.error()[0].to_string(),
            options_.out +
                ".rows.csv: was measured with \"device: Scripted GPU, sm_90\", not with \"device: Other GPU, sm_80\"; "
                "expected a file of the same set-up");
  EXPECT_THAT(refused.error()[1].to_string(), HasSubstr("\"driver: 1.0\", not with \"driver: 2.0\""));
  EXPECT_EQ(text(".rows.csv"), before);
}

TEST_F(RunTest, AFaultNamesClassCallAndDeviceAndKeepsTheRows) {
  bench_.fault_at = 4;
  const std::string call = describe(calibration_plan(options_.classes, true)[3]);
  EXPECT_EQ(
      limit_of_run(),
      "Scripted GPU failed in class " +
          std::string(class_name(calibration_plan(options_.classes, true)[3].call_class)) + ", call " + call +
          ": kernels/x.cu:7: cudaLaunchKernel(): cudaErrorLaunchFailure: boom; the rows measured before it are in " +
          options_.out + ".rows.csv: run again with --resume");
  EXPECT_THAT(rows(), SizeIs(3));
  EXPECT_FALSE(std::filesystem::exists(options_.out));
  bench_.fault_at = -1;
  options_.resume = true;
  ASSERT_TRUE(run());
  EXPECT_THAT(rows(), SizeIs(24));
}

TEST_F(RunTest, LeavesOutWhatTheMachineCannotRunAndSaysSo) {
  bench_.unsupported_at = 2;
  const auto outcome = run();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->left_out, 1U);
  EXPECT_EQ(outcome->measured, 23U);
  ASSERT_THAT(said_, SizeIs(1));
  EXPECT_EQ(said_[0], bench_.prepared[1] + ": left out: head dimension 256; supported are 64 and 128");
}

TEST_F(RunTest, MarksRowsOfALowClock) {
  options_.classes = {CallClass::kLaunch};
  bench_.clock_mhz = 1000;
  const auto outcome = run();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->throttled, 1U);
  EXPECT_THAT(rows()[0], testing::EndsWith("throttled"));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("the clock stayed at 1000 of 2000 MHz; the row is marked")));
}

TEST_F(RunTest, TablesLieBesideTheRows) {
  options_.classes = {CallClass::kLaunch, CallClass::kOverlap};
  const auto outcome = run();
  ASSERT_TRUE(outcome);
  EXPECT_THAT(outcome->table_files, ElementsAre(options_.out + ".overlap.csv"));
  EXPECT_THAT(text(".overlap.csv"), testing::EndsWith("compute,ms\ngemm,1.5\n"));
  bench_.table_faults = true;
  options_.resume = true;
  EXPECT_THAT(limit_of_run(), HasSubstr("Scripted GPU failed in class overlap, call overlap: validate/gpu/y.cpp:9: "
                                        "cudaMalloc(): out of memory; the rows measured before it are in"));
}

// 24 rows of 3 s and a table of 20 s: what is left falls to nothing, and rows that are there count as done.
TEST_F(RunTest, ShowsWhatIsLeft) {
  options_.classes = {CallClass::kGemm, CallClass::kElementwise, CallClass::kOverlap};
  hooks_.predicted_seconds = [](const CalibrationCall&) { return 3.0; };
  ASSERT_TRUE(run());
  ASSERT_THAT(shown_, SizeIs(26));
  EXPECT_EQ(shown_[0].done, 0U);
  EXPECT_EQ(shown_[0].of, 25U);
  EXPECT_DOUBLE_EQ(shown_[0].predicted_left_seconds, 92);
  EXPECT_DOUBLE_EQ(shown_[1].predicted_left_seconds, 89);
  EXPECT_EQ(shown_[24].what, "overlap");
  EXPECT_EQ(shown_[25].done, 25U);
  EXPECT_NEAR(shown_[25].predicted_left_seconds, 0, 1e-9);
  shown_.clear();
  options_.resume = true;
  ASSERT_TRUE(run());
  EXPECT_EQ(shown_[0].done, 24U);
}

TEST_F(RunTest, SaysWhereItCannotWrite) {
  options_.out = (folder_ / "no" / "h200.json").string();
  const auto refused = run();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error()[0].to_string(), HasSubstr("no/h200.json.rows.csv: cannot be written"));
  EXPECT_TRUE(bench_.prepared.empty());
}

}  // namespace
}  // namespace longhaul
