// Where the command says no, and what it leaves behind: nothing half done, nothing silently ignored.
#include <gtest/gtest.h>
#include <pty.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "sim/cli/output_folder.h"
#include "sim/core/error.h"
#include "tests/unit/cli/command_line.h"

namespace longhaul::command_line {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// `strategies` of `gpus` H200 with `documents`.
std::string study(const std::string& name, const std::string& strategies, const std::string& documents, int gpus = 8,
                  const std::string& training = R"({"zero_stage": 3, "recompute": "full"})") {
  return write(name, R"({"schema": "study/1", "name": "strict", "topology": "dgx-h200-ndr", "gpus": )" +
                         std::to_string(gpus) + R"(, "model": "llama3-8b", "documents": )" + documents +
                         R"(, "training": )" + training + R"(, "strategies": )" + strategies + "}");
}

constexpr const char* kFew = R"({"explicit": [[4096, 100], [3000]]})";

std::string too_large() {
  return study("too-large.json", R"(["allgather-cp"])", R"({"explicit": [[131072]]})", 8,
               R"({"zero_stage": 0, "recompute": "none"})");
}

TEST(Strict, SeedIsARangeAndNeverSilentlyIgnored) {
  const std::string file = study("given.json", R"(["allgather-cp"])", kFew);
  for (const char* seed : {"-1", "99999999999999999999", "9223372036854775808", "1.5", "x", "''"}) {
    const Output output = longhaul("simulate ./" + file + " --strategy allgather-cp --seed " + seed);
    EXPECT_EQ(output.code, 2) << seed;
    EXPECT_NE(output.err.find("0 to 9223372036854775807"), std::string::npos) << output.err;
  }
  const Output output =
      longhaul("simulate ./" + file + " --strategy allgather-cp --format csv --seed 9223372036854775807");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_NE(output.err.find("--seed has no effect"), std::string::npos) << output.err;
  const std::string sampled =
      study("sampled.json", R"(["allgather-cp"])", R"({"lengths": "wlb", "context_tokens": 4096, "sequences": 1})");
  EXPECT_EQ(longhaul("simulate ./" + sampled + " --strategy allgather-cp --format csv --seed 3").err, "");
}

TEST(Strict, FileNamesAreUniqueInRowOrder) {
  EXPECT_EQ(unique_file_names({"a/b", "a_b", "a b", "a-b", "..", "", "a_b-2"}),
            (std::vector<std::string>{"a_b", "a_b-2", "a_b-3", "a-b", "_.", "_", "a_b-2-2"}));
  EXPECT_EQ(plain_file_name(std::string(400, 'x')).size(), 180U);
  const std::string here = scratch().string();
  EXPECT_EQ(unused_json_file(here, "kept"), here + "/kept.json");
  for (const char* name : {"kept.json", "kept-2.json"}) write(name, "{}");
  EXPECT_EQ(unused_json_file(here, "kept"), here + "/kept-3.json");
  const std::string file = study("labels.json", R"([{"name": "allgather-cp", "label": "a/b"},
      {"name": "flashcp", "label": "a_b"}, {"name": "zigzag-cp", "label": "a b"}])",
                                 kFew);
  ASSERT_EQ(longhaul("compare ./" + file + " --out labels").code, 0);
  for (const char* name : {"strict.a_b", "strict.a_b-2", "strict.a_b-3"}) {
    EXPECT_TRUE(fs::exists(scratch() / "labels/traces" / (std::string(name) + ".trace.json"))) << name;
  }
}

TEST(Strict, PlanAndVerifySayWhatDoesNotFit) {
  const std::string file = too_large();
  for (const char* command : {"plan", "verify", "simulate"}) {
    const Output output = longhaul(std::string(command) + " ./" + file + " --strategy allgather-cp");
    EXPECT_EQ(output.code, 3) << command;
    EXPECT_NE(output.err.find("allgather-cp does not fit: rank "), std::string::npos) << output.err;
    EXPECT_NE(output.err.find(" GB of "), std::string::npos) << output.err;
    EXPECT_NE(output.err.find("; fits with "), std::string::npos) << output.err;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }
  const std::string other = study("other.json", R"(["csbp"])", kFew);
  for (const char* command : {"plan", "verify"}) {
    EXPECT_EQ(longhaul(std::string(command) + " ./" + other + " --strategy csbp").code, 2) << command;
  }
}

TEST(Strict, LastLineSaysWhyNothingWins) {
  Output output = longhaul("compare ./" + study("none.json", R"(["csbp"])", kFew) + " --out none-applies");
  EXPECT_EQ(output.code, 3);
  EXPECT_NE(output.err.find("no strategy is applicable"), std::string::npos) << output.err;
  EXPECT_EQ(output.err.find("memory"), std::string::npos) << output.err;
  output = longhaul("compare ./" + too_large() + " --out none-fits");
  EXPECT_EQ(output.code, 3);
  EXPECT_NE(output.err.find("no strategy fits into memory"), std::string::npos) << output.err;
}

TEST(Strict, TraceHasADefaultFolderAndAPlanIsJson) {
  const std::string file = study("trace.json", R"(["allgather-cp"])", kFew);
  ASSERT_EQ(longhaul("simulate ./" + file + " --strategy allgather-cp --trace").code, 0);
  EXPECT_TRUE(fs::exists(scratch() / "results/strict/strict.allgather-cp.trace.json.gz"));
  EXPECT_TRUE(fs::exists(scratch() / "results/strict/result.json"));
  const Output output = longhaul("plan ./" + file + " --strategy allgather-cp --format csv");
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("a plan is no table"), std::string::npos) << output.err;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// report.html comes after results.json: the move of the first has to be taken back, and the old file is there again.
TEST(Strict, OutputIsAllOrNothing) {
  const std::string file = study("blocked.json", R"(["allgather-cp"])", kFew);
  fs::create_directories(scratch() / "blocked/report.html");
  write("blocked/results.json", "old");
  Output output = longhaul("compare ./" + file + " --out blocked");
  EXPECT_EQ(output.code, 3);
  EXPECT_NE(output.err.find("report.html is a folder; remove it or give another folder with --out"), std::string::npos)
      << output.err;
  EXPECT_EQ(names_in(scratch() / "blocked"), (std::vector<std::string>{"report.html", "results.json"}));
  EXPECT_EQ(read(scratch() / "blocked/results.json"), "old");
  write("plain", "");
  output = longhaul("compare ./" + file + " --out plain");
  EXPECT_EQ(output.code, 3);
  EXPECT_NE(output.err.find("plain is not a folder; give another folder with --out"), std::string::npos) << output.err;
  const std::string deep = "fresh/" + std::string(300, 'n') + "/x";
  output = longhaul("compare ./" + file + " --out " + deep);
  EXPECT_EQ(output.code, 3);
  EXPECT_NE(output.err.find("give a shorter folder with --out"), std::string::npos) << output.err;
  EXPECT_FALSE(fs::exists(scratch() / "fresh")) << "folders made on the way are removed";
}

TEST(Strict, DrawingMakesNoFolders) {
  const Output output = longhaul("topology dgx-h200-ndr --svg nowhere/t.svg");
  EXPECT_EQ(output.code, 3);
  EXPECT_NE(output.err.find("there is no folder nowhere; make it"), std::string::npos) << output.err;
  EXPECT_FALSE(fs::exists(scratch() / "nowhere"));
}

TEST(Strict, UnknownAndUnbuiltSubcommandsAreNamed) {
  Output output = longhaul("comapre x");
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("unknown subcommand \"comapre\"; expected one of "), std::string::npos) << output.err;
  EXPECT_NE(output.err.find("did you mean \"compare\"?"), std::string::npos) << output.err;
  for (const std::string name : {"search", "sweep", "report"}) {
    for (const char* rest : {"", " --help", " x"}) {
      output = longhaul(name + rest);
      EXPECT_EQ(output.code, 2) << name << rest;
      EXPECT_NE(output.err.find(name + " is not built yet"), std::string::npos) << output.err;
    }
  }
}

TEST(Strict, CheckTakesShippedNamesAndCalibrations) {
  Output output = longhaul("check tiny-two-nodes dgx-h200-ndr llama3-8b wlb h200");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.out,
            "tiny-two-nodes: valid study\ndgx-h200-ndr: valid topology\nllama3-8b: valid model\n"
            "wlb: valid length table\nh200: valid device\n");
  output = longhaul("check dgx-h200-nrd");
  EXPECT_EQ(output.code, 2);
  EXPECT_NE(output.err.find("did you mean \"dgx-h200-ndr\"?"), std::string::npos) << output.err;
  write("calibration.json", R"({"schema": "calibration/3"})");
  output = longhaul("check calibration.json --format json");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(Json::parse(output.out)[0]["kind"], "calibration");
}

TEST(Strict, ToleranceIsFiniteAndAboveZero) {
  const std::string file = study("tolerance.json", R"(["allgather-cp"])", kFew);
  for (const char* value : {"inf", "nan", "0", "-1", "1e999", "x"}) {
    const Output output = longhaul("verify ./" + file + " --strategy allgather-cp --tolerance " + value);
    EXPECT_EQ(output.code, 2) << value;
    EXPECT_NE(output.err.find("expected a finite number above 0"), std::string::npos) << output.err;
  }
}

// One of each is singular; memory is in GB; digits are ASCII (42 thousand ms would have a thin space).
TEST(Strict, TerminalTextIsPlain) {
  const std::string file = study("one.json", R"(["data-parallel"])", R"({"explicit": [[8192]]})", 1);
  const Output output = longhaul("compare ./" + file + " --out one");
  EXPECT_NE(output.out.find("on 1 GPU of dgx-h200-ndr, 1 document in 1 sequence, 8192 tokens a step"),
            std::string::npos)
      << output.out;
  EXPECT_NE(output.out.find("peak GB"), std::string::npos) << output.out;
  for (const char c : output.out) ASSERT_LT(static_cast<unsigned char>(c), 0x80U) << output.out;
  EXPECT_EQ(output.out.find("GiB"), std::string::npos) << output.out;
  EXPECT_NE(read(scratch() / "one/report.html").find("on 1 GPU of"), std::string::npos);
  EXPECT_NE(longhaul("topology dgx-h200-ndr --gpus 1").out.find("1 GPU ("), std::string::npos);
}

// On a terminal that is standard error, a run of over a second names its phase; the golden study's largest does.
TEST(Strict, VerifyShowsItsPhasesOnATerminal) {
  const std::string file =
      study("slow.json", R"(["allgather-cp"])", R"({"explicit": [[1024], [1024], [1024], [1024]]})");
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string path = (scratch() / file).string();
    execl(std::getenv("LONGHAUL"), "longhaul", "verify", path.c_str(), "--strategy", "allgather-cp", nullptr);
    std::abort();  // the command could not be started
  }
  std::string shown;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = ::read(terminal, buffer.data(), buffer.size())) > 0;) {
    shown.append(buffer.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0) << shown;
  EXPECT_NE(shown.find("2/3 executing on virtual ranks"), std::string::npos) << shown;
}

}  // namespace
}  // namespace longhaul::command_line
