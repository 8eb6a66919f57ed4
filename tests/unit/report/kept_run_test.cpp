// Kept runs: round trip, every fault of a file at once, and what counts as accuracy data.
#include "validate/report/kept_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/json_schema/schema_errors.h"
#include "tests/unit/report/small_case.h"
#include "validate/report/run_targets.h"
#include "validate/report/runs_table.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

KeptRun small_run(const std::string& label, const std::string& origin, double slow = 1) {
  const Prepared prepared = small_case(label);
  const Prediction prediction = predict_run(*prepared->setup, prepared->planned);
  KeptRun run = kept_synthetic(*prepared, synthetic_run(prediction, {}, 8, 1, [&](const PredictedOp& op) {
    return op.kind == OpKind::kAttention ? slow : 1.0;
  }));
  run.origin = origin;
  run.record.hardware.driver = "1.2";
  return run;
}

TEST(KeptRun, RoundTrip) {
  const KeptRun run = small_run("flashcp", "synthetic");
  const std::string text = kept_run_text(run);
  const Expected<KeptRun> read = parse_kept_run(*parse_json(text, "run.json"), "run.json");
  ASSERT_TRUE(read) << read.error().front().to_string();
  EXPECT_EQ(read->record, run.record);
  EXPECT_EQ(read->study, run.study);
  EXPECT_EQ(kept_run_text(*read), text);
}

TEST(KeptRun, ABareRecordIsTakenWithoutAStudy) {
  const KeptRun run = small_run("flashcp", "synthetic");
  const Expected<KeptRun> read = parse_kept_run(to_json(run.record), "bare.json");
  ASSERT_TRUE(read) << read.error().front().to_string();
  EXPECT_TRUE(read->study.is_null());
  EXPECT_EQ(read->origin, "");
  EXPECT_EQ(read->strategy, "flashcp");
}

// Stored runs of the first version still load; each version has its own form of record.
TEST(KeptRun, TheFirstVersionIsRead) {
  const KeptRun run = small_run("flashcp", "synthetic");
  Json json = *parse_json(kept_run_text(run), "run.json");
  json["schema"] = "kept-run/1";
  const Expected<KeptRun> mixed = parse_kept_run(json, "run.json");
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().front().to_string(),
            "run.json: /record/format: is \"longhaul-run/2\"; expected \"longhaul-run/1\" in kept-run/1");
  json["record"] = to_json(run.record);
  const Expected<KeptRun> read = parse_kept_run(json, "run.json");
  ASSERT_TRUE(read) << read.error().front().to_string();
  EXPECT_EQ(read->record, run.record);
  EXPECT_EQ(kept_run_text(*read), kept_run_text(run));
}

TEST(KeptRun, ObeysItsSchema) {
  std::ifstream in(LONGHAUL_KEPT_RUN_SCHEMA);
  const nlohmann::json schema = nlohmann::json::parse(in);
  nlohmann::json value = nlohmann::json::parse(kept_run_text(small_run("flashcp", "synthetic")));
  EXPECT_EQ(schema_errors(schema, value), "");
  value["record"]["op_blocks"][0]["duration_ticks"][0][0] = -1;
  EXPECT_FALSE(obeys(schema, value));
  value["record"]["op_blocks"][0]["duration_ticks"][0][0] = 1;
  EXPECT_EQ(schema_errors(schema, value), "");
  value["record"]["op_templates"][0]["kind"] = "gemmm";
  EXPECT_FALSE(obeys(schema, value));
}

TEST(KeptRun, EveryFaultAtOnce) {
  Json json = *parse_json(kept_run_text(small_run("flashcp", "synthetic")), "run.json");
  json["origin"] = "mesured";
  json.erase("study");
  json["strategy"] = 3;
  json["recrd"] = 1;
  json["record"].erase("op_blocks");
  const Expected<KeptRun> read = parse_kept_run(json, "run.json");
  ASSERT_FALSE(read);
  std::string all;
  for (const InputError& error : read.error()) all += error.to_string() + "\n";
  EXPECT_THAT(all, HasSubstr("run.json: /origin: "));
  EXPECT_THAT(all, HasSubstr("did you mean \"measured\"?"));
  EXPECT_THAT(all, HasSubstr("run.json: /study: is missing; expected the study that ran, an object of schema study/1"));
  EXPECT_THAT(all, HasSubstr("run.json: /strategy: is 3"));
  EXPECT_THAT(all, HasSubstr("run.json: /record/op_blocks"));
  EXPECT_THAT(all, HasSubstr("run.json: /recrd: unknown key"));
}

class RunsFolder : public testing::Test {
 protected:
  RunsFolder() : folder_(fs::temp_directory_path() / ("longhaul-runs-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~RunsFolder() override { fs::remove_all(folder_); }
  void add(const std::string& name, const KeptRun& run) { std::ofstream(folder_ / name) << kept_run_text(run); }
  std::string path() const { return folder_.string(); }

 private:
  fs::path folder_;
};

TEST_F(RunsFolder, WithNoRunsItSaysSo) {
  const Expected<RunsAccuracy> none = judge_runs(path() + "/not-there");
  ASSERT_TRUE(none);
  EXPECT_THAT(runs_text(*none), HasSubstr("nothing has been compared with a device yet"));
  EXPECT_EQ(Json::parse(runs_json(*none))["runs"].size(), 0U);
}

// A file in the folder's place: that there are no runs would be a lie.
TEST_F(RunsFolder, WhatCannotBeListedIsAnError) {
  add("a.json", small_run("flashcp", "synthetic"));
  const Expected<RunsAccuracy> runs = judge_runs(path() + "/a.json");
  ASSERT_FALSE(runs);
  EXPECT_THAT(runs.error().front().to_string(), HasSubstr("a.json: Not a directory; expected a folder of kept runs"));
}

TEST_F(RunsFolder, OnlyMeasuredRunsCount) {
  add("a.json", small_run("flashcp", "synthetic"));
  add("b.json", small_run("flashcp", "emulated"));
  KeptRun dateless = small_run("flashcp", "measured");
  dateless.record.hardware.driver = "";
  add("c.json", dateless);
  KeptRun on_host = small_run("flashcp", "measured");
  on_host.record.hardware.device = "host";
  add("d.json", on_host);
  KeptRun stale = small_run("flashcp", "measured");
  stale.record.identity.fingerprint = 1;
  add("e.json", stale);
  const Expected<RunsAccuracy> accuracy = judge_runs(path());
  ASSERT_TRUE(accuracy);
  const std::string text = runs_text(*accuracy);
  EXPECT_THAT(text, HasSubstr("left out: a.json: synthetic: made for tests"));
  EXPECT_THAT(text, HasSubstr("left out: b.json: emulated on the host: no device ran it"));
  EXPECT_THAT(text, HasSubstr("left out: c.json: its date or driver is not known"));
  EXPECT_THAT(text, HasSubstr("left out: d.json: no device ran it"));
  EXPECT_THAT(text, HasSubstr("left out: e.json: this version does not make its schedule: "));
  EXPECT_THAT(text, HasSubstr("nothing has been compared with a device yet"));
}

// What is here called measured stands in a folder of this test alone, and is gone with it.
TEST_F(RunsFolder, ErrorsAndOrders) {
  add("a.json", small_run("flashcp", "measured", 1.25));
  add("b.json", small_run("allgather-cp", "measured"));
  const Expected<RunsAccuracy> accuracy = judge_runs(path());
  ASSERT_TRUE(accuracy);
  ASSERT_EQ(accuracy->runs.size(), 2U);
  for (const JudgedRun& run : accuracy->runs) EXPECT_EQ(run.left_out, "") << run.file;
  EXPECT_EQ(accuracy->orders.pairs.size() + static_cast<std::size_t>(accuracy->orders.too_close), 1U);
  const Json json = Json::parse(runs_json(*accuracy));
  for (const Json& kind : json["kinds"]) {
    if (kind["kind"] == "attention forward") {
      EXPECT_NEAR(kind["nine_in_ten"].get<double>(), 0.2, 1e-6);
    }
    if (kind["kind"] == "gemm forward") {
      EXPECT_NEAR(kind["nine_in_ten"].get<double>(), 0, 1e-6);
    }
  }
  EXPECT_THAT(runs_text(*accuracy), HasSubstr("kernel time of a rank, median"));
  // Four virtual ranks of a short step: shown without a target; no run says anything of long ones and of several GPUs.
  for (const RunTarget& target : run_targets(*accuracy)) {
    EXPECT_EQ(target.measured.has_value(), target.scope == "virtual ranks, shorter steps") << target.name;
    EXPECT_FALSE(target.pass().has_value()) << target.name;
    if (target.name == "kernel time of a rank, median") {
      EXPECT_EQ(target.count, target.measured ? 8U : 0U) << target.scope;
    }
  }
  ASSERT_EQ(json["not_covered"].size(), 2U);
  EXPECT_THAT(json["not_covered"][0].get<std::string>(), HasSubstr("virtual ranks: 0 of 40 asked runs are kept"));
  EXPECT_THAT(json["not_covered"][1].get<std::string>(), HasSubstr("several GPUs: 0 of 66 asked runs are kept"));
  EXPECT_THAT(runs_csv(*accuracy), HasSubstr("a.json,small,small,flashcp,virtual,4,synthetic,1.2,0,2026-01-02,8,"));
}

// Ten strategies at two lengths on 4 and 8 virtual ranks are asked: with all of them the line ends there, and without
// one it is named.
TEST(UncoveredRuns, NameWhatIsMissingAlone) {
  RunsAccuracy accuracy;
  for (const char* strategy :
       {"flashcp", "basp", "csbp", "dpp", "allgather-cp", "per-doc-cp", "ulysses", "bd-offset-cp", "1f1b", "seq1f1b"}) {
    for (const std::int64_t tokens : {65536, 131072}) {
      for (const std::int32_t ranks : {4, 8}) {
        JudgedRun& run = accuracy.runs.emplace_back();
        run.tokens = tokens;
        run.comparison.strategy = strategy;
        run.comparison.ranks = ranks;
        run.comparison.placement = RankPlacement::kVirtual;
      }
    }
  }
  EXPECT_EQ(uncovered_runs(accuracy).front(), "virtual ranks: 40 of 40 asked runs are kept");
  accuracy.runs.pop_back();
  EXPECT_EQ(uncovered_runs(accuracy).front(),
            "virtual ranks: 39 of 40 asked runs are kept; none of seq1f1b (128K on 8)");
}

TEST_F(RunsFolder, FilesThatAreNoRunsAreErrors) {
  std::ofstream(fs::path(path()) / "x.json") << "{}";
  std::ofstream(fs::path(path()) / "y.json") << "{";
  const Expected<RunsAccuracy> accuracy = judge_runs(path());
  ASSERT_FALSE(accuracy);
  EXPECT_GE(accuracy.error().size(), 2U);
}

TEST(Orders, OnlyPairsThatDifferByMoreThanTheInterval) {
  const auto run = [](const char* strategy, double predicted, double low, double measured, double high) {
    Comparison of;
    of.strategy = strategy;
    ComparedRow row;
    row.predicted = predicted;
    row.measured = measured;
    row.measured_low = low;
    row.measured_high = high;
    of.rank_compute = {row};
    return of;
  };
  const Orders orders =
      compare_orders({run("a", 1.0, 0.9, 1.0, 1.1), run("b", 1.3, 1.15, 1.2, 1.3), run("c", 0.9, 1.25, 1.4, 1.5)});
  EXPECT_EQ(orders.too_close, 1);  // b and c overlap
  ASSERT_EQ(orders.pairs.size(), 2U);
  EXPECT_TRUE(orders.pairs[0].right());   // a before b
  EXPECT_FALSE(orders.pairs[1].right());  // a before c, predicted the other way round
  EXPECT_NEAR(orders.pairs[1].measured_ratio, 1.4, 1e-12);
}

// a takes 10 s, b 10.2 s as predicted. Half-widths of class 0, which both have: 0.2 and 0.3 s, so that it
// moves the ratio by 0.3 / 10.2 - 0.2 / 10 = 0.94 %; class 1, 0.5 s in b alone, by 4.90 %. Quadrature: 4.99 %.
TEST(Orders, TheIntervalOfThePredictedRatioSaysWhatIsTooClose) {
  const auto run = [](const char* strategy, double measured, double predicted, double shared, double own) {
    Comparison of;
    of.strategy = strategy;
    ComparedRow row;
    row.predicted = predicted;
    row.measured = row.measured_low = row.measured_high = measured;
    of.rank_compute = {row};
    of.slowest_rank.time = Time::from_seconds(predicted);
    of.slowest_rank.widths.below[0] = of.slowest_rank.widths.above[0] = shared;
    of.slowest_rank.widths.below[1] = of.slowest_rank.widths.above[1] = own;
    return of;
  };
  const auto only = [](const Orders& orders) {
    EXPECT_EQ(orders.pairs.size(), 1U);
    return orders.pairs.front();
  };
  // Measured the other way round by 2 %: wrong, and closer than the interval.
  const OrderedPair close = only(compare_orders({run("a", 10.2, 10, 0.2, 0), run("b", 10, 10.2, 0.3, 0.5)}));
  EXPECT_NEAR(close.predicted_high / close.predicted_ratio - 1, 0.0499, 1e-4);
  EXPECT_FALSE(close.right());
  EXPECT_FALSE(close.beyond());
  // By 6 %: beyond it, whatever the prediction claims.
  const OrderedPair far = only(compare_orders({run("a", 10.6, 10, 0.2, 0), run("b", 10, 10.2, 0.3, 0.5)}));
  EXPECT_FALSE(far.right());
  EXPECT_TRUE(far.beyond());
  // By 1 %, where the prediction claims 2 % the other way within less than that: beyond it too, and wrong.
  const OrderedPair claimed = only(compare_orders({run("a", 10.1, 10, 0.2, 0), run("b", 10, 10.2, 0.3, 0)}));
  EXPECT_LT(claimed.predicted_high, 1);
  EXPECT_FALSE(claimed.right());
  EXPECT_TRUE(claimed.beyond());
  // The same claim and measured so: beyond, right.
  const OrderedPair right = only(compare_orders({run("a", 10, 10, 0.2, 0), run("b", 10.1, 10.2, 0.3, 0)}));
  EXPECT_TRUE(right.right());
  EXPECT_TRUE(right.beyond());
}

}  // namespace
}  // namespace longhaul
