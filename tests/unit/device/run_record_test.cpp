// The JSON form of a measured run: round trip, bytes, every fault of a file.
#include "validate/device/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

#include "sim/core/json.h"
#include "tests/unit/device/device_case.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunRecord example() {
  RunRecord record;
  record.identity = {"four-way", "64k",        "flashcp",      "study.json", {"layers 32 to 2"}, 0xfedcba9876543210ULL,
                     7,          "2026-11-29", "abc123-dirty", "0.1.0"};
  record.hardware.device = "NVIDIA H200";
  record.hardware.device_memory_bytes = 150109880320;
  record.ranks = 1;
  record.warmups = 1;
  record.repeats = 2;
  record.rank_runs = {{0, 0, 1000, 2000, 2048, 64, 0, {900, 910}, {}}};
  MeasuredOp op;
  op.kind = OpKind::kAttention;
  op.pass = Pass::kBackward;
  op.position = 3;
  op.segment = 2;
  op.index = 1;
  op.layer = 1;
  op.label = "attention_backward";
  op.kernel = "cudnn";
  op.start_ps = {10, 12};
  op.end_ps = {500, 498};
  record.ops = {op};
  record.numerics = {
      {"dQ", "fp64", std::numeric_limits<double>::infinity(), 0.01, 0.02, 64, 3, "layer 0, rank 0", false}};
  record.exclusions = {{0, 2, "collectives", "virtual ranks have no links"}};
  return record;
}

std::string file_in_temporary_folder(const std::string& name) { return testing::TempDir() + "/" + name; }

TEST(RunRecord, ReadsBackWhatItWrote) {
  const RunRecord record = example();
  const Expected<RunRecord> read = run_record_from_json(to_json(record), "run.json");
  ASSERT_TRUE(read) << read.error().front().to_string();
  EXPECT_EQ(*read, record);
}

TEST(RunRecord, FilesAreEqualByteForByte) {
  const std::string first = file_in_temporary_folder("first.json");
  const std::string second = file_in_temporary_folder("second.json");
  write_run_record(example(), first);
  const Expected<RunRecord> read = read_run_record(first);
  ASSERT_TRUE(read) << read.error().front().to_string();
  write_run_record(*read, second);
  const auto text = [](const std::string& file) {
    std::ifstream in(file);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  };
  EXPECT_EQ(text(first), text(second));
  EXPECT_THAT(text(first), HasSubstr("\"start_ps\":[10,12]"));  // one op a line
}

TEST(RunRecord, AFolderThatIsNotThereIsALimit) {
  EXPECT_THROW(write_run_record(example(), "/no/such/folder/run.json"), LimitError);
}

TEST(RunRecord, EveryFaultIsListedWithItsPointer) {
  Json json = to_json(example());
  json["format"] = "longhaul-run/3";
  json["ops"][0]["kind"] = "gemmm";
  json["ops"][0]["end_ps"] = {9, 498};      // before its start
  json["rank_runs"][0]["step_ps"] = {900};  // one repeat is missing
  json["hardware"].erase("driver");
  json["identity"]["fingerprint"] = "12";
  json["surplus"] = 1;
  const Expected<RunRecord> read = run_record_from_json(json, "run.json");
  ASSERT_FALSE(read);
  std::string all;
  for (const InputError& error : read.error()) all += error.to_string() + "\n";
  EXPECT_THAT(all, HasSubstr("/format"));
  EXPECT_THAT(all, HasSubstr("/ops/0/kind"));
  EXPECT_THAT(all, HasSubstr("did you mean \"gemm\""));
  EXPECT_THAT(all, HasSubstr("/ops/0/end_ps/0"));
  EXPECT_THAT(all, HasSubstr("at least the start, 10"));
  EXPECT_THAT(all, HasSubstr("/rank_runs/0/step_ps"));
  EXPECT_THAT(all, HasSubstr("driver"));
  EXPECT_THAT(all, HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(all, HasSubstr("surplus"));
}

TEST(RunRecord, ClocksOfStepsAreReadAndChecked) {
  RunRecord record = example();
  EXPECT_EQ(to_json(record)["rank_runs"][0].count("clock_mhz"), 0U);  // as records before had none
  record.rank_runs.front().clock_mhz = {1575, 0};
  const Expected<RunRecord> read = run_record_from_json(to_json(record), "run.json");
  ASSERT_TRUE(read) << read.error().front().to_string();
  EXPECT_EQ(*read, record);
  Json json = to_json(record);
  json["rank_runs"][0]["clock_mhz"] = {-5, "fast", 1e9};
  const Expected<RunRecord> wrong = run_record_from_json(json, "run.json");
  ASSERT_FALSE(wrong);
  std::string all;
  for (const InputError& error : wrong.error()) all += error.to_string() + "\n";
  EXPECT_THAT(all, HasSubstr("/rank_runs/0/clock_mhz/1: is \"fast\"; expected a whole number of MHz"));
  EXPECT_THAT(all, HasSubstr("/rank_runs/0/clock_mhz/0: is no clock; expected 0 to 100000 MHz"));
  record.rank_runs.front().clock_mhz = {1575};
  const Expected<RunRecord> few = run_record_from_json(to_json(record), "run.json");
  ASSERT_FALSE(few);
  EXPECT_THAT(few.error().front().to_string(),
              HasSubstr("/rank_runs/0/clock_mhz: has 1 clocks; expected one a step: 2"));
}

// Reports index ranks by these numbers, and take a machine without whole steps for one that measured none.
TEST(RunRecord, RanksAndWholeStepsAreChecked) {
  RunRecord record = example();
  record.ranks = 2;
  record.rank_runs.push_back(record.rank_runs.front());
  record.rank_runs.front().step_ps = {900, -1};
  record.step_ps = {900};
  const auto faults = [&] {
    std::string all;
    const Expected<RunRecord> read = run_record_from_json(to_json(record), "run.json");
    if (!read) {
      for (const InputError& error : read.error()) all += error.to_string() + "\n";
    }
    return all;
  };
  std::string all = faults();
  EXPECT_THAT(all, HasSubstr("/rank_runs/1/rank: is 0; expected below 2, each rank once"));
  EXPECT_THAT(all, HasSubstr("/rank_runs/0/step_ps/1: is -1; expected at least 0"));
  EXPECT_THAT(all, HasSubstr("/step_ps: has 1 times; expected none of virtual ranks: 0"));
  record.placement = RankPlacement::kReal;
  record.rank_runs.back().rank = 2;
  all = faults();
  EXPECT_THAT(all, HasSubstr("/rank_runs/1/rank: is 2; expected below 2, each rank once"));
  EXPECT_THAT(all, HasSubstr("/step_ps: has 1 times; expected one a repeat: 2"));
  record.rank_runs.front().step_ps = {900, 910};
  record.rank_runs.back().rank = 1;
  record.step_ps = {900, 910};
  EXPECT_EQ(faults(), "");
}

TEST(RunRecord, AFailedRunMayHaveFewerRepeats) {
  RunRecord record = example();
  record.ops[0].start_ps = {10};
  record.ops[0].end_ps = {500};
  record.rank_runs[0].step_ps.clear();
  EXPECT_FALSE(run_record_from_json(to_json(record), "run.json"));
  record.failure = {"hang", "stream 0 is not done", 0, 3, "attention_backward", "cudnn"};
  EXPECT_TRUE(run_record_from_json(to_json(record), "run.json"));
}

TEST(ScheduleFingerprint, TellsSchedulesApart) {
  DeviceCase of;
  of.strategy = "allgather-cp";
  const auto schedule = schedule_of(of);
  EXPECT_EQ(schedule_fingerprint(*schedule), schedule_fingerprint(*schedule_of(of)));
  Schedule changed = *schedule;
  changed.segments[0].ops[0].label += "x";
  EXPECT_NE(schedule_fingerprint(changed), schedule_fingerprint(*schedule));
  Schedule other_model = *schedule;
  other_model.model.ffn += 8;
  EXPECT_NE(schedule_fingerprint(other_model), schedule_fingerprint(*schedule));
  DeviceCase longer = of;
  longer.sequences[0][0] += 1;
  EXPECT_NE(schedule_fingerprint(*schedule_of(longer)), schedule_fingerprint(*schedule));
}

}  // namespace
}  // namespace longhaul
