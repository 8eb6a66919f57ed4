// The command as scripts see it: exit codes, every error at once, nothing written on error, stable output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/unit/cli/command_line.h"

namespace longhaul::command_line {
namespace {

using Json = nlohmann::ordered_json;

// Two sequences of 8 GPUs; small enough for every command.
constexpr const char* kStudy = R"({
  "schema": "study/1", "name": "small", "topology": "dgx-h200-ndr", "gpus": 8, "model": "llama3-8b",
  "documents": {"explicit": [[4096, 100], [3000]]},
  "training": {"zero_stage": 3, "recompute": "full"},
  "strategies": ["allgather-cp", "flashcp", "dpp", "csbp"], "baseline": "allgather-cp"})";

std::string study_with(const std::string& name, const std::string& from, const std::string& to) {
  std::string text = kStudy;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return write(name, text.replace(at, from.size(), to));
}

TEST(Command, HelpShowsAnExampleAndExitsZero) {
  for (const char* name : {"compare", "simulate", "plan", "verify", "check", "topology", "pipeline", "cost"}) {
    const Output help = longhaul(std::string(name) + " --help");
    EXPECT_EQ(help.code, 0) << name;
    EXPECT_NE(help.out.find("Example:\n  longhaul " + std::string(name)), std::string::npos) << help.out;
    for (const char* option : {"--format", "--seed", "--threads", "--quiet"}) {
      EXPECT_NE(help.out.find(option), std::string::npos) << name << " " << option;
    }
  }
  EXPECT_EQ(longhaul("--version").code, 0);
}

TEST(Command, WrongArgumentsExitTwo) {
  for (const char* arguments : {"", "nosuch", "compare", "compare a b", "compare small --format xml",
                                "compare small --threads 0", "simulate small", "compare small --trace some"}) {
    const Output output = longhaul(arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_FALSE(output.err.empty()) << arguments;
    EXPECT_TRUE(output.out.empty()) << arguments << ": " << output.out;
  }
}

TEST(Compare, WritesResultsReportTracesAndRun) {
  write("small.json", kStudy);
  const Output output = longhaul("compare ./small.json --out compared --quiet --threads 1");
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_TRUE(output.err.empty()) << output.err;
  const Json results = Json::parse(read(scratch() / "compared/results.json"));
  EXPECT_EQ(results["schema"], "results/1");
  for (const char* key : {"version", "calibration", "seed", "study", "strategies"}) EXPECT_TRUE(results.contains(key));
  EXPECT_NE(read(scratch() / "compared/report.html").find("flashcp"), std::string::npos);
  EXPECT_TRUE(Json::parse(read(scratch() / "compared/traces/small.flashcp.trace.json")).is_structured());
  const Json run = Json::parse(read(scratch() / "compared/run.json"));
  for (const char* key : {"date", "host", "duration_s", "threads"}) {
    EXPECT_TRUE(run.contains(key));
    EXPECT_FALSE(results.contains(key)) << "results hold nothing of the run";
  }
  for (const auto& file : std::filesystem::recursive_directory_iterator(scratch() / "compared")) {
    EXPECT_NE(file.path().extension(), ".tmp");
  }
}

TEST(Compare, TwoProcessesAndAnyThreadsGiveTheSameBytes) {
  write("small.json", kStudy);
  ASSERT_EQ(longhaul("compare ./small.json --out first --threads 1").code, 0);
  ASSERT_EQ(longhaul("compare ./small.json --out second --threads 2").code, 0);
  const std::string first = read(scratch() / "first/results.json");
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(first, read(scratch() / "second/results.json"));
  EXPECT_EQ(read(scratch() / "first/report.html"), read(scratch() / "second/report.html"));
}

TEST(Compare, PrintsTheResultsAsJsonAndCsv) {
  write("small.json", kStudy);
  const std::string json = longhaul("compare ./small.json --out printed --format json").out;
  EXPECT_TRUE(json == read(scratch() / "printed/results.json"));
  const std::string csv = longhaul("compare ./small.json --out printed --format csv").out;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5) << csv;  // a header and four rows
  const Output table = longhaul("compare ./small.json --out printed");
  EXPECT_NE(table.out.find("csbp: not applicable: runs block diffusion, not causal language models"),
            std::string::npos);
  std::size_t line = 0;
  for (const char c : table.out) {
    line = c == '\n' ? 0 : line + 1;
    EXPECT_LE(line, 124U) << "a line is wider than a terminal";  // bytes; a few characters take two
  }
}

// Steps of less than a millisecond: step and ends are printed to three digits, not as "0.4" and "0-1".
TEST(Compare, ShortStepsKeepTheirDigits) {
  write("short.json", R"({
    "schema": "study/1", "name": "short", "topology": "dgx-h200-ndr", "gpus": 2,
    "model": {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 4, "num_hidden_layers": 1,
              "vocab_size": 1000}, "documents": {"explicit": [[256, 100]]},
    "training": {"scope": "forward-backward"}, "strategies": ["allgather-cp"], "baseline": "allgather-cp"})");
  const Output output = longhaul("compare ./short.json --out short --quiet");
  ASSERT_EQ(output.code, 0) << output.err;
  const Json entry = Json::parse(read(scratch() / "short/results.json"))["strategies"][0];
  const double step = entry["step_time_ms"];
  ASSERT_LT(step, 1);
  const std::size_t at = output.out.find("\nallgather-cp *");
  ASSERT_NE(at, std::string::npos) << output.out;
  std::istringstream row(output.out.substr(at + std::string("\nallgather-cp *").size()));
  double shown = 0;
  double low = 0;
  double high = 0;  // "0.123-0.234": the dash reads as the sign
  row >> shown >> low >> high;
  EXPECT_NEAR(shown, step, 0.005 * step) << output.out;
  EXPECT_NEAR(low, entry["step_time_low_ms"].get<double>(), 0.005 * step) << output.out;
  EXPECT_NEAR(-high, entry["step_time_high_ms"].get<double>(), 0.005 * step) << output.out;
}

TEST(Compare, DefaultFolderIsNamedAfterTheStudy) {
  write("small.json", kStudy);
  ASSERT_EQ(longhaul("compare ./small.json --strategy flashcp").code, 0);
  EXPECT_TRUE(std::filesystem::exists(scratch() / "results/small/results.json"));
}

// Every fault of a study at once, each with file, JSON pointer, what was expected and the nearest name; nothing on
// standard output and nothing written.
TEST(Compare, ListsEveryErrorAndWritesNothing) {
  write("wrong.json", R"({
    "schema": "study/1", "name": "wrong", "topology": "dgx-h200-nrd", "gpus": -8, "modle": "llama3-8b",
    "model": "llama3-9b", "documents": {"lengths": "wbl", "context_tokens": "many", "sequences": 4},
    "strategies": ["flashpc", "ulysses", "ulysses"], "baseline": "ulyses"})");
  const Output output = longhaul("compare ./wrong.json --out wrong-out");
  EXPECT_EQ(output.code, 2);
  EXPECT_TRUE(output.out.empty()) << output.out;
  EXPECT_FALSE(std::filesystem::exists(scratch() / "wrong-out"));
  for (const char* part :
       {"./wrong.json: /topology: ", "did you mean \"dgx-h200-ndr\"?",
        "./wrong.json: /gpus: ", "./wrong.json: /modle: ", "did you mean \"model\"?", "did you mean \"llama3-8b\"?",
        "/documents/lengths: ", "did you mean \"wlb\"?", "/documents/context_tokens: ", "/strategies/0",
        "did you mean \"flashcp\"?", "/strategies/2"}) {
    EXPECT_NE(output.err.find(part), std::string::npos) << part << " is missing in\n" << output.err;
  }
}

TEST(Compare, LayoutAndBatchFaultsAreErrorsOfTheEntry) {
  const std::string layout =
      study_with("layout.json", "\"flashcp\"", R"({"name": "flashcp", "layout": {"cp": 4, "dp": 4}})");
  Output output = longhaul("compare ./" + layout + " --out none");
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("./layout.json: /strategies/1/layout: "), std::string::npos) << output.err;
  const std::string fill =
      study_with("fill.json", "\"flashcp\"", R"({"name": "flashcp", "layout": {"cp": 2, "dp": 4}})");
  output = longhaul("compare ./" + fill + " --out none");
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("4"), std::string::npos) << "the nearest count is named: " << output.err;
  EXPECT_FALSE(std::filesystem::exists(scratch() / "none"));
  output = longhaul("compare ./" + layout + " --strategy flashpc");
  EXPECT_EQ(output.code, 2);
  const std::string gpus = study_with("gpus.json", "\"gpus\": 8", "\"gpus\": 12");
  output = longhaul("check " + gpus);
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("gpus"), std::string::npos) << output.err;
}

TEST(Compare, UnknownPolicyOptionNamesTheNearest) {
  const std::string file = study_with("option.json", "\"flashcp\"", R"({"name": "flashcp", "imbalance_limt": 1.05})");
  const Output output = longhaul("compare ./" + file);
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("/strategies/1/imbalance_limt: unknown key; expected one of "), std::string::npos);
  EXPECT_NE(output.err.find("did you mean \"imbalance_limit\"?"), std::string::npos) << output.err;
}

TEST(Compare, ExitsThreeWhenNothingFits) {
  std::string text = kStudy;
  text = text.replace(text.find("\"zero_stage\": 3"), 15, "\"zero_stage\": 0");
  text = text.replace(text.find("[\"allgather-cp\", \"flashcp\", \"dpp\", \"csbp\"]"), 42, "[\"allgather-cp\"]");
  text = text.replace(text.find("llama3-8b"), 9, "qwen3-8b");
  text = text.replace(text.find("[[4096, 100], [3000]]"), 21, "[[131072]]");
  text = text.replace(text.find("\"full\""), 6, "\"none\"");
  write("large.json", text);
  const Output output = longhaul("compare ./large.json --out large");
  EXPECT_EQ(output.code, 3) << output.err;
  const Json results = Json::parse(read(scratch() / "large/results.json"));
  const Json& row = results["strategies"][0];
  EXPECT_TRUE(row.contains("step_time_ms")) << "a row that does not fit keeps its times";
  for (const char* key : {"needed_bytes", "limit_bytes", "rank", "category", "smallest_change"}) {
    EXPECT_TRUE(row["does_not_fit"].contains(key)) << key;
  }
  EXPECT_TRUE(results["winners"][0]["name"].is_null());
  EXPECT_EQ(longhaul("simulate ./large.json --strategy allgather-cp").code, 3);
}

TEST(Simulate, PrintsOneEntry) {
  write("small.json", kStudy);
  const Output output = longhaul("simulate ./small.json --strategy flashcp --format json");
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(Json::parse(output.out)["name"], "flashcp");
  const Output other = longhaul("simulate ./small.json --strategy csbp");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("csbp is not applicable: runs block diffusion"), std::string::npos) << other.err;
}

// Summary and segments sum to the step; results.json has no path; CSV rows stay as they are.
TEST(Simulate, ShowsTheCriticalPath) {
  study_with("longer.json", "[[4096, 100], [3000]]", "[[40960, 100], [30000]]");
  const std::string json = longhaul("simulate ./longer.json --strategy flashcp --format json --out path").out;
  EXPECT_EQ(json, read(scratch() / "path/result.json"));
  const Json entry = Json::parse(json);
  const Json& path = entry["critical_path"];
  const auto ps = [](const Json& value) { return std::llround(value.get<double>() * 1e9); };
  EXPECT_EQ(ps(path["step_time_ms"]), ps(entry["step_time_ms"]));
  long long sum = 0;
  for (const Json& one : path["summary"]) {
    sum += ps(one["time_ms"]);
    EXPECT_EQ(one["step_shrinks_by_at_most_ms"], one["time_ms"]);
  }
  EXPECT_EQ(sum, ps(entry["step_time_ms"]));
  EXPECT_GT(path["segment_count"].get<int>(), 1000);
  ASSERT_EQ(path["segments"].size(), 1000U) << "the first 1000";
  EXPECT_EQ(ps(path["segments"][0]["begin_ms"]), 0);
  for (std::size_t i = 1; i < 1000; ++i) {
    EXPECT_EQ(ps(path["segments"][i]["begin_ms"]), ps(path["segments"][i - 1]["end_ms"]));
  }
  const std::string table = longhaul("simulate ./longer.json --strategy flashcp").out;
  EXPECT_NE(table.find("\n  critical path: "), std::string::npos) << table;
  EXPECT_NE(table.find("the step would shrink by at most "), std::string::npos) << table;
  const std::string csv = longhaul("simulate ./longer.json --strategy flashcp --format csv").out;
  EXPECT_EQ(csv.find("critical_path"), std::string::npos) << csv;
  longhaul("compare ./longer.json --strategy flashcp --out pathless");
  EXPECT_EQ(read(scratch() / "pathless/results.json").find("critical_path"), std::string::npos);
}

TEST(Plan, IsJson) {
  write("small.json", kStudy);
  const Output output = longhaul("plan ./small.json --strategy dpp");
  ASSERT_EQ(output.code, 0) << output.err;
  const Json plan = Json::parse(output.out);
  EXPECT_EQ(plan["schema"], "plan/1");
  EXPECT_TRUE(plan["plan"].is_object());
  EXPECT_EQ(longhaul("plan ./small.json --strategy csbp").code, 2);
}

TEST(Verify, PassesAndFailsByTheTolerance) {
  study_with("few.json", "[[4096, 100], [3000]]", "[[200, 30], [150]]");
  const Output output = longhaul("verify ./few.json --strategy flashcp --format json");
  ASSERT_EQ(output.code, 0) << output.err;
  const Json report = Json::parse(output.out);
  EXPECT_TRUE(report["pass"].get<bool>());
  EXPECT_LT(report["worst"].get<double>(), 1e-10);
  EXPECT_NE(report["reduced"].dump().find("layers 32 -> 2"), std::string::npos) << report["reduced"];
  // Rounding alone is above 1e-20: the gate can fail.
  EXPECT_EQ(longhaul("verify ./few.json --strategy flashcp --tolerance 1e-20").code, 1);
}

// Without --strategy every entry of the study, a line each; what cannot run says why and does not fail the others.
TEST(Verify, AllStrategiesOfAStudy) {
  study_with("few.json", "[[4096, 100], [3000]]", "[[200, 30], [150]]");
  const Output output = longhaul("verify ./few.json --format json");
  ASSERT_EQ(output.code, 0) << output.err;
  const Json report = Json::parse(output.out);
  EXPECT_TRUE(report["pass"].get<bool>());
  std::size_t verified = 0;
  for (const Json& one : report["strategies"]) {
    if (one.contains("not_applicable")) continue;
    ++verified;
    EXPECT_TRUE(one["pass"].get<bool>()) << one["name"];
    EXPECT_LT(one["worst"].get<double>(), 1e-10) << one["name"];
  }
  EXPECT_GE(verified, 3u);
  EXPECT_EQ(longhaul("verify ./few.json --tolerance 1e-20").code, 1);
  const Output none = longhaul("verify ./few.json --case nosuch");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("the study has no case \"nosuch\""), std::string::npos) << none.err;
}

// A plan that is given names tokens of the whole documents, which are not verified: the reason says what is.
TEST(Verify, SaysWhatWasReducedWhereThatIsWhy) {
  const auto study = [](int tokens) {
    const std::string piece = R"([[[[{"document": 0, "first_token": 0, "tokens": )" + std::to_string(tokens) + "}]]]]";
    write("planned.json", R"({"schema": "study/1", "name": "planned", "topology": "dgx-h200-ndr", "gpus": 2,
      "model": "llama3-8b", "documents": {"explicit": [[)" +
                              std::to_string(tokens) + R"(]]}, "training": {"recompute": "full"},
      "strategies": [{"name": "dpp", "layout": {"pp": 2, "sp": 1}, "assignment": [)" +
                              piece + "]}]}");
    return longhaul("verify planned.json --strategy dpp");
  };
  const Output small = study(256);
  EXPECT_EQ(small.code, 0) << small.err;
  const Output large = study(8192);
  EXPECT_EQ(large.code, 2);
  EXPECT_NE(large.err.find("not 8192 (reduced: layers 32 -> 2, "), std::string::npos) << large.err;
  EXPECT_NE(large.err.find(", tokens 8192 -> "), std::string::npos) << large.err;
}

TEST(Verify, RandomBatches) {
  study_with("few.json", "[[4096, 100], [3000]]", "[[200, 30], [150]]");
  const std::string command = "verify ./few.json --strategy flashcp --batches 2 --format json";
  const Output output = longhaul(command);
  ASSERT_EQ(output.code, 0) << output.err;
  const Json random = Json::parse(output.out)["random"];
  EXPECT_EQ(random["batches"].get<int>() + random["not_applicable"].get<int>(), 2);
  EXPECT_GE(random["batches"].get<int>(), 1);
  EXPECT_LT(random["worst"].get<double>(), 1e-10);
  EXPECT_EQ(longhaul(command).out, output.out);
  const Output failing = longhaul(command + " --tolerance 1e-20");
  EXPECT_EQ(failing.code, 1);
  EXPECT_EQ(Json::parse(failing.out)["random"]["faults"].size(), random["batches"].get<std::size_t>());
  EXPECT_EQ(longhaul("verify ./few.json --strategy flashcp --batches -1").code, 2);
}

TEST(Check, NamesTheKindAndEveryError) {
  write("small.json", kStudy);
  Output output = longhaul("check small.json");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.out, "small.json: valid study\n");
  write("broken.csv", "quantile,tokens\n0,1\n0.5,0\n");
  output = longhaul("check small.json broken.csv missing.json");
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("broken.csv"), std::string::npos) << output.err;
  EXPECT_NE(output.err.find("missing.json"), std::string::npos) << output.err;
}

TEST(Topology, DescribesAndDraws) {
  Output output = longhaul("topology dgx-h200-ndr --gpus 32 --format json --svg t.svg");
  ASSERT_EQ(output.code, 0) << output.err;
  const Json summary = Json::parse(output.out);
  EXPECT_EQ(summary["nodes"], 4);
  EXPECT_EQ(summary["gpus"], 32);
  EXPECT_NE(read(scratch() / "t.svg").find("<svg"), std::string::npos);
  output = longhaul("topology dgx-h200-ndr --gpus 32 --route 0 99");
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("there is no rank 99"), std::string::npos) << output.err;
  EXPECT_EQ(longhaul("topology dgx-h200-nrd").code, 2);
}

TEST(Topology, AppliesWhatIfs) {
  write("slow.json",
        R"({"base": "dgx-h200-ndr",
          "what_if": [{"links": "n1.nic3", "down": true}, {"rail": 2, "scale_bandwidth": 0.5}]})");
  Output output = longhaul("topology ./slow.json --gpus 32 --route 3 11 --format json --svg slow.svg");
  ASSERT_EQ(output.code, 0) << output.err;
  const Json summary = Json::parse(output.out);
  EXPECT_EQ(summary["what_if"].dump(), R"(["n1.nic3 down","rail 2, bandwidth x 0.5"])");
  EXPECT_EQ(summary["bisections"].back()["level"], "cluster");
  // Two nodes of each half: 2 x 7 NICs and rail 2 at half, less the NIC that is down.
  EXPECT_DOUBLE_EQ(summary["bisections"].back()["GBps"].get<double>(), (2 * 7 + 2 * 0.5 - 1) * 48);
  EXPECT_EQ(summary["routes"][0]["links"].dump(),
            R"(["n0.g3.nvl>","n0.g0.nvl<","n0.nic0>","n1.nic0<","n1.g0.nvl>","n1.g3.nvl<"])");
  EXPECT_EQ(summary["routes"][0]["hops"].size(), 6u);
  EXPECT_NE(read(scratch() / "slow.svg").find("what if: n1.nic3 down"), std::string::npos);
  // A picture is written whole or not at all.
  write("cut.json", R"({"base": "dgx-h200-ndr", "what_if": [{"links": "n1.nic*", "down": true}]})");
  output = longhaul("topology ./cut.json --svg cut.svg");
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("/what_if/0: the links that are down leave no way from rank"), std::string::npos)
      << output.err;
  EXPECT_FALSE(std::filesystem::exists(scratch() / "cut.svg"));
}

// 1F1B, 4 stages, 8 micro-batches, F = B + W = 1 and 2: (8 + 3) x 3 = 33; bubble 3 / 11.
TEST(Pipeline, FollowsTheClosedForm) {
  const Output output = longhaul(
      "pipeline --schedule 1f1b --stages 4 --microbatches 8 --forward-us 1 --backward-input-us 1 "
      "--backward-weight-us 1 --format json");
  ASSERT_EQ(output.code, 0) << output.err;
  const Json report = Json::parse(output.out);
  EXPECT_DOUBLE_EQ(report["makespan_us"].get<double>(), 33);
  EXPECT_NEAR(report["bubble_rate"].get<double>(), 3.0 / 11, 1e-12);
  EXPECT_EQ(longhaul("pipeline --schedule 1f2b --stages 4 --microbatches 8 --forward-us 1 --backward-input-us 1 "
                     "--backward-weight-us 1")
                .code,
            2);
}

TEST(Cost, FormatsAreWhatTheySay) {
  write("rows.csv", "op,pass,m,n,k,note\ngemm,fwd,4096,4096,4096,mine\n");
  const Output csv = longhaul("cost --device h200 --format csv rows.csv");
  ASSERT_EQ(csv.code, 0) << csv.err;
  EXPECT_EQ(csv.out.rfind("op,pass,m,n,k,note,predicted_ms,low_ms,high_ms,basis\ngemm,fwd,", 0), 0u) << csv.out;
  const Json json = Json::parse(longhaul("cost --device h200 --format json rows.csv").out);
  const Json& row = json.at("rows").at(0);
  EXPECT_EQ(row.at("note"), "mine");
  EXPECT_TRUE(row.at("predicted_ms").is_number());
  EXPECT_LE(row.at("low_ms").get<double>(), row.at("predicted_ms").get<double>());
  const std::string table = longhaul("cost --device h200 --format table rows.csv").out;
  EXPECT_EQ(table.find(','), std::string::npos) << table;
  EXPECT_NE(table.find("predicted_ms"), std::string::npos) << table;
  write("rows.csv", "op,pass,m,n,k,low_ms\ngemm,fwd,4096,4096,4096,1\n");
  const Output twice = longhaul("cost --device h200 rows.csv");
  EXPECT_EQ(twice.code, 2);
  EXPECT_NE(twice.err.find("low_ms"), std::string::npos) << twice.err;
}

TEST(Cost, PredictsRowsInOrder) {
  write("rows.csv", "op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces,bytes\ngemm,fwd,4096,4096,4096,,,,,,\n");
  const Output output = longhaul("cost --device H200 rows.csv");
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_NE(output.out.find("gemm,fwd,4096,4096,4096"), std::string::npos);
  EXPECT_EQ(longhaul("cost --device H201 rows.csv").code, 2);
}

TEST(Cost, AttentionByAnotherLibrary) {
  write("attention.csv",
        "op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces,bytes\n"
        "attention,fwd,,,,32,8,128,causal,16384x16384,\ngemm,fwd,4096,4096,4096,,,,,,\n");
  const auto milliseconds = [](const Output& output, const char* row) {
    const std::size_t at = output.out.find(row) + std::string(row).size();
    return std::stod(output.out.substr(at));
  };
  const std::string command = "cost --device h200 attention.csv --attention-library ";
  const Output cudnn = longhaul("cost --device h200 attention.csv"), by_name = longhaul(command + "cudnn");
  const Output fa2 = longhaul(command + "flash-attention-2"), fa3 = longhaul(command + "flash-attention-3");
  ASSERT_EQ(cudnn.code + fa2.code + fa3.code, 0) << fa2.err << fa3.err;
  EXPECT_EQ(cudnn.out, by_name.out);
  // The rates of docs/accuracy-log.md: cuDNN 600 and more, FlashAttention-3 about 600, FlashAttention-2 about 350.
  const char* attention = "16384x16384,,";
  EXPECT_GT(milliseconds(fa2, attention), 1.5 * milliseconds(cudnn, attention));
  EXPECT_GT(milliseconds(fa2, attention), 1.5 * milliseconds(fa3, attention));
  EXPECT_NE(cudnn.out, fa3.out);
  const std::string gemm = cudnn.out.substr(cudnn.out.find("gemm,fwd"));
  EXPECT_NE(fa2.out.find(gemm), std::string::npos);  // nothing else moves

  Output wrong = longhaul(command + "flash-attention-1");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("--attention-library: \"flash-attention-1\" is no attention library; expected one of cudnn, "
                           "flash-attention-2, flash-attention-3, flex-flash-attention; did you mean"),
            std::string::npos)
      << wrong.err;
  wrong = longhaul("cost --device a100-80gb attention.csv --attention-library flash-attention-3");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(
      wrong.err.find("--attention-library: \"flash-attention-3\" has no constants for a100-80gb; expected GPUs of "
                     "a generation among hopper"),
      std::string::npos)
      << wrong.err;
}

}  // namespace
}  // namespace longhaul::command_line
