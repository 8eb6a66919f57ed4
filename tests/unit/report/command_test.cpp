// `longhaul validate` as a user runs it: without a GPU, with stored runs, with wrong input, emulated on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/command_line.h"
#include "tests/unit/report/small_case.h"

namespace longhaul::command_line {
namespace {

using testing::HasSubstr;

struct Files {
  std::string study = write("small.json", small_study(R"(["flashcp", "dpp", "ulysses"])").dump(2));
  std::string record = write("run.json", run(1, 20));
  std::string same = write("same.json", run(1, 20));
  std::string slow = write("slow.json", run(1.08, 20));

  // Attention forward `slow` times as long, 1 % noise of every call.
  static std::string run(double slow, int repeats) {
    static const Prepared prepared = small_case();
    static const Prediction prediction = predict_run(*prepared->setup, prepared->planned);
    static std::uint64_t seed = 0;
    Noise noise;
    noise.call = 0.01;
    return kept_run_text(
        kept_synthetic(*prepared, synthetic_run(prediction, noise, repeats, ++seed, [&](const PredictedOp& op) {
          return op.kind == OpKind::kAttention && op.pass == Pass::kForward ? slow : 1.0;
        })));
  }
};

const Files& files() {
  static const Files made;
  return made;
}

std::string case_name() { return small_case()->study_case->name; }

std::string validate(const std::string& more) { return "validate " + files().study + " --strategy flashcp " + more; }

TEST(Validate, WithoutAGpuItSaysWhatIsMissing) {
  const Output output = longhaul(validate(""));
  EXPECT_EQ(output.code, 3) << output.err;
  EXPECT_THAT(output.err, HasSubstr("--record FILE"));
  EXPECT_THAT(output.err, HasSubstr("--device host"));
  EXPECT_EQ(output.out, "");
}

TEST(Validate, TheCommandStartsWithoutCudasLibraries) {
  const std::string list = "ldd '" + std::string(std::getenv("LONGHAUL")) + "' >'" + scratch().string() + "/ldd'";
  ASSERT_EQ(std::system(list.c_str()), 0);
  const std::string loaded = read(scratch() / "ldd");
  EXPECT_THAT(loaded, HasSubstr("libstdc++"));
  for (const char* library : {"libcuda", "libcublas", "libcudnn", "libnccl"}) {
    EXPECT_EQ(loaded.find(library), std::string::npos) << loaded;
  }
}

TEST(Validate, AllStrategiesInOneGo) {
  const Output output =
      longhaul("validate " + files().study + " --device host --reduced --repeats 1 --warmups 0 --out all");
  EXPECT_EQ(output.code, 0) << output.err;
  for (const char* label : {"flashcp", "dpp", "ulysses"}) {
    EXPECT_THAT(output.err, HasSubstr(std::string(" ") + label + " passes"));
    const Json run = Json::parse(read(scratch() / "all" / (case_name() + "-" + label) / "run-record.json"));
    EXPECT_EQ(run["strategy"], label);
    EXPECT_GT(run["record"]["numerics"].size(), 5U);
    for (const Json& one : run["record"]["numerics"]) EXPECT_EQ(one["reference"], "fp64");
  }
  const Output wrong = longhaul("validate " + files().study + " --record run.json");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--record: is of one strategy; expected --strategy LABEL beside it"));
}

TEST(Validate, ThePlanRunsNothing) {
  const Output output = longhaul("validate " + files().study + " --plan --virtual-ranks 4 --repeats 5");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("3 runs, about "));
  EXPECT_THAT(output.out, HasSubstr("flashcp"));
}

TEST(Validate, APlantIsToldAndWrongOnesAreNamed) {
  const Output output = longhaul(validate("--device host --reduced --repeats 1 --warmups 0 --plant 'gate_up=300%'"));
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("gate_up takes 300 % longer, on purpose"));
  const Output unknown = longhaul(validate("--device host --reduced --plant gate_pu=0.08"));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--plant: no kernel of the schedule is called \"gate_pu\""));
  EXPECT_THAT(unknown.err, HasSubstr("did you mean \"gate_up\"?"));
  const Output nonsense = longhaul(validate("--plant 8% --keep"));
  EXPECT_EQ(nonsense.code, 2);
  EXPECT_THAT(nonsense.err, HasSubstr("--plant: is \"8%\"; expected KERNEL=SHARE"));
  EXPECT_THAT(nonsense.err, HasSubstr("--keep: a run that was slowed down on purpose is no accuracy data"));
}

TEST(Validate, AStoredRunIsCompared) {
  const Output output = longhaul(validate("--record run.json"));
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("flashcp, cp 4, on 4 virtual ranks of one synthetic, 20 repeats, 2026-01-02"));
  EXPECT_THAT(output.out, HasSubstr("note: this run is synthetic, not measured on a device"));
  EXPECT_THAT(output.out, HasSubstr("communication was not measured"));
  EXPECT_THAT(output.out, HasSubstr("attention backward"));
  EXPECT_THAT(output.out, HasSubstr("The 10 worst ops by |predicted - measured|"));
  const Output again = longhaul(validate("--record run.json"));
  EXPECT_EQ(again.out, output.out);
}

TEST(Validate, ASlowKernelFailsTheGateAndIsNamed) {
  const Output same = longhaul(validate("--record same.json --baseline run.json"));
  EXPECT_EQ(same.code, 0) << same.out;
  const Output slow = longhaul(validate("--record slow.json --baseline run.json --junit junit.xml --markdown sum.md"));
  EXPECT_EQ(slow.code, 1) << slow.out;
  EXPECT_THAT(slow.out, HasSubstr("FAIL slow-down: attention (forward): +"));
  EXPECT_THAT(read(scratch() / "junit.xml"), HasSubstr("<failure type=\"slow-down\""));
  EXPECT_THAT(read(scratch() / "sum.md"), HasSubstr("**FAIL** slow-down: attention (forward)"));
  const Output wide = longhaul(validate("--record slow.json --baseline run.json --max-slowdown 0.2"));
  EXPECT_EQ(wide.code, 0) << wide.out;
}

TEST(Validate, PredictionErrorsAreGatedWhereAsked) {
  const Output fine = longhaul(validate("--record run.json --max-error 0.05"));
  EXPECT_EQ(fine.code, 0) << fine.out;
  const Output tight = longhaul(validate("--record slow.json --max-error 0.03"));
  EXPECT_EQ(tight.code, 1) << tight.out;
  EXPECT_THAT(tight.out, HasSubstr("FAIL prediction: attention forward: predicted "));
}

TEST(Validate, FormsAndFilesAgree) {
  const Output output = longhaul(validate("--record slow.json --baseline run.json --out results --format json"));
  EXPECT_EQ(output.code, 1);
  EXPECT_EQ(read(scratch() / "results/validation.json"), output.out);
  const Json json = Json::parse(output.out);
  EXPECT_EQ(json["schema"], "validation/1");
  EXPECT_FALSE(json["gates"]["pass"]);
  EXPECT_EQ(json["step"]["source"], "composed");
  EXPECT_THAT(read(scratch() / "results/validation.md"), HasSubstr("## longhaul validate: flashcp"));
  EXPECT_THAT(read(scratch() / "results/junit.xml"), HasSubstr("<testsuites"));
  const Json trace = Json::parse(read(scratch() / "results/timelines.trace.json"));
  EXPECT_GT(trace["traceEvents"].size(), 100U);
  const Output csv = longhaul(validate("--record slow.json --format csv"));
  EXPECT_THAT(csv.out, HasSubstr("kind_ms,attention forward,measured,"));
}

TEST(Validate, EveryWrongInputAtOnce) {
  const Output output = longhaul("validate " + files().study +
                                 " --strategy flashpc --max-error 5 --max-slowdown -1 --baseline none.json "
                                 "--record run.json --reduced --out wrong --keep");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err, HasSubstr("--strategy: the study has no strategy \"flashpc\""));
  EXPECT_THAT(output.err, HasSubstr("did you mean \"flashcp\"?"));
  EXPECT_THAT(output.err, HasSubstr("<command line>: --max-error: is \"5\"; expected a fraction above 0 and below 1, "
                                    "like 0.05 for 5 %"));
  EXPECT_THAT(output.err, HasSubstr("<command line>: --max-slowdown: is \"-1\""));
  EXPECT_THAT(output.err, HasSubstr("none.json"));
  EXPECT_THAT(output.err, HasSubstr("--reduced: a stored run is reduced already"));
  EXPECT_THAT(output.err, HasSubstr("--keep: a stored run is kept already"));
  EXPECT_FALSE(std::filesystem::exists(scratch() / "wrong"));
}

TEST(Validate, ALimitWithoutABaselineIsWrong) {
  const Output output = longhaul(validate("--record run.json --max-slowdown 0.05"));
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.err, HasSubstr("--max-slowdown: limits nothing without a baseline; expected --baseline FILE"));
}

TEST(Validate, FewerVirtualRanksThanGpusNeedReduced) {
  const Output output = longhaul(validate("--device host --virtual-ranks 2"));
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.err, HasSubstr("--virtual-ranks: is 2; expected 4, the study's GPUs, or --reduced"));
}

TEST(Validate, ARunOfAnotherStrategyOrBaseline) {
  const Output other = longhaul("validate " + files().study + " --strategy ulysses --record run.json");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err,
              HasSubstr("run.json: /strategy: is \"flashcp\"; expected \"ulysses\", as on the command line"));
  Json foreign = Json::parse(read(scratch() / files().record));
  foreign["record"]["identity"]["study"] = "theirs";
  foreign["record"]["identity"]["case"] = "their case";
  foreign["record"]["hardware"]["device"] = "another";
  write("foreign.json", foreign.dump());
  const Output baseline = longhaul(validate("--record run.json --baseline foreign.json --out foreign"));
  EXPECT_EQ(baseline.code, 2);
  EXPECT_THAT(baseline.err, HasSubstr("foreign.json: /record/identity/study: is a run of study \"theirs\"; expected "
                                      "\"small\""));
  EXPECT_THAT(baseline.err, HasSubstr("foreign.json: /record/identity/case: is a run of case \"their case\""));
  EXPECT_THAT(baseline.err, HasSubstr("foreign.json: /record/hardware/device: is a run of device \"another\""));
  EXPECT_FALSE(std::filesystem::exists(scratch() / "foreign"));
}

// Takes one op off a column, in which [value, n] stands for n ops.
void drop_last(Json& column) {
  Json& last = column.back();
  if (last.is_array() && last[1] > 1) {
    last[1] = last[1].get<int>() - 1;
  } else {
    column.erase(column.size() - 1);
  }
}

TEST(Validate, ARecordThatLacksOps) {
  Json run = Json::parse(read(scratch() / files().record));
  Json& block = run["record"]["op_blocks"][0];  // without its last op
  for (const char* column : {"template", "position_step", "segment", "layer", "chunk"}) drop_last(block[column]);
  for (Json& times : block["gap_ticks"]) times.erase(times.size() - 1);
  for (Json& times : block["duration_ticks"]) times.erase(times.size() - 1);
  write("lacking.json", run.dump());
  const Output output = longhaul(validate("--record lacking.json"));
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.err, HasSubstr("lacking.json: /record: lacks op ")) << output.err;
}

TEST(Validate, ARunThatEndedEarlyIsToldInOneLine) {
  Json run = Json::parse(read(scratch() / files().record));
  run["record"]["failure"] = {
      {"kind", "hang"},  {"message", "stream 3 did not end"}, {"rank", 2}, {"position", 17}, {"op", "rank 2, op 17"},
      {"kernel", "nccl"}};
  write("hung.json", run.dump());
  const Output output = longhaul(validate("--record hung.json"));
  EXPECT_EQ(output.code, 3) << output.err;
  EXPECT_THAT(output.err, HasSubstr("the run ended early (hang): stream 3 did not end"));
}

TEST(Validate, TheHostEmulatesASmallVersion) {
  const Output output =
      longhaul(validate("--device host --reduced --virtual-ranks 2 --repeats 1 --warmups 0 --out host"));
  EXPECT_EQ(output.code, 0) << output.out << output.err;
  EXPECT_THAT(output.out, HasSubstr("note: this run is emulated, not measured on a device"));
  EXPECT_THAT(output.out, HasSubstr("reduced: cp 4 -> 2: 2 virtual ranks here"));
  EXPECT_THAT(output.out, HasSubstr("dQ"));
  // What it wrote is a run that can be given back.
  const Output again = longhaul(validate("--record host/run-record.json"));
  EXPECT_EQ(again.code, 0) << again.err;
  const Output keep = longhaul(validate("--device host --reduced --keep"));
  EXPECT_EQ(keep.code, 2);
  EXPECT_THAT(keep.err, HasSubstr("--keep: an emulation measures no device"));
}

TEST(Validate, AccuracyOfRunsLeavesOutWhatNoDeviceRan) {
  std::filesystem::create_directories(scratch() / "runs");
  write("runs/a.json", read(scratch() / files().record));
  const Output output = longhaul("accuracy --table runs --runs runs");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("left out: a.json: synthetic: made for tests"));
  EXPECT_THAT(output.out, HasSubstr("nothing has been compared with a device yet"));
}

}  // namespace
}  // namespace longhaul::command_line
