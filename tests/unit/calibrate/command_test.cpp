// The whole command with a GPU by script (scripted_module.cpp): files, exit codes and texts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/unit/cli/command_line.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using command_line::Output;
using command_line::read;
using command_line::scratch;
using testing::HasSubstr;

constexpr int kInterrupted = 130;

// A copy of the command beside the scripted module, which it finds first.
class CommandTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* command = std::getenv("LONGHAUL");
    const char* module = std::getenv("SCRIPTED_MODULE");
    ASSERT_TRUE(command != nullptr && module != nullptr);
    fs::copy_file(command, scratch() / "longhaul", fs::copy_options::overwrite_existing);
    fs::copy_file(module, scratch() / "longhaul-gpu.so", fs::copy_options::overwrite_existing);
    setenv("LONGHAUL", (scratch() / "longhaul").c_str(), 1);
  }
  void SetUp() override {
    unsetenv("LONGHAUL_SCRIPT");
    for (const char* file : {"a.json", "a.json.rows.csv", "a.json.overlap.csv"}) fs::remove(scratch() / file);
  }
  static Output run(const std::string& script, const std::string& arguments) {
    setenv("LONGHAUL_SCRIPT", script.c_str(), 1);
    return command_line::longhaul("calibrate --out a.json " + arguments);
  }
  static std::size_t rows() {
    const std::string text = read(scratch() / "a.json.rows.csv");
    std::size_t count = 0;
    for (std::size_t from = 0; from < text.size(); from = text.find('\n', from) + 1) {
      count += text[from] != '#' && text.compare(from, 6, "class,") != 0 ? 1 : 0;
    }
    return count;
  }
};

TEST_F(CommandTest, MeasuresFitsAndWrites) {
  const Output output = run("", "--format csv");
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, testing::StartsWith("class,rows,counted,median_error,p90_error,covered\n"));
  EXPECT_THAT(output.out, HasSubstr("\ngemm,168,"));
  EXPECT_EQ(rows(), 852U);
  const auto json = nlohmann::json::parse(read(scratch() / "a.json"));
  EXPECT_EQ(json["name"], "h200");
  EXPECT_EQ(json["measured_on"], "2026-11-29");
  EXPECT_TRUE(fs::exists(scratch() / "a.json.overlap.csv"));
  EXPECT_THAT(output.err, HasSubstr("a.json: calibration of h200 from 852 rows"));
  // Measured already: without --resume nothing is touched.
  const Output again = run("", "");
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("a.json.rows.csv: is there already; expected another file, or --resume"));
}

TEST_F(CommandTest, AFaultLeavesRowsAndNoCalibration) {
  const Output output = run("fault", "--quick");
  EXPECT_EQ(output.code, 3);
  EXPECT_THAT(output.err, HasSubstr("longhaul: GPU 0 (H200) failed in class "));
  EXPECT_THAT(output.err, HasSubstr("cudaErrorLaunchFailure: boom; the rows measured before it are in a.json.rows.csv: "
                                    "run again with --resume"));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1);
  EXPECT_EQ(rows(), 4U);
  EXPECT_FALSE(fs::exists(scratch() / "a.json"));
  EXPECT_EQ(run("other-device", "--quick --resume").code, 2);
  EXPECT_EQ(rows(), 4U);
  const Output resumed = run("", "--quick --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(fs::exists(scratch() / "a.json"));
}

TEST_F(CommandTest, AnInterruptKeepsRows) {
  const Output output = run("interrupt", "--quick");
  EXPECT_EQ(output.code, kInterrupted);
  EXPECT_EQ(output.err, "longhaul: interrupted; 5 rows are in a.json.rows.csv: go on with --resume\n");
  EXPECT_EQ(rows(), 5U);
  EXPECT_FALSE(fs::exists(scratch() / "a.json"));
  EXPECT_EQ(run("", "--quick --resume").code, 0);
}

TEST_F(CommandTest, SaysThatThereIsNoDevice) {
  const Output output = run("no-device", "");
  EXPECT_EQ(output.code, 3);
  EXPECT_EQ(output.err, "longhaul: no CUDA device: scripted; run where a GPU is\n");
  EXPECT_FALSE(fs::exists(scratch() / "a.json.rows.csv"));
}

TEST_F(CommandTest, NamesADeviceThatItDoesNotKnow) {
  const Output output = run("", "--device h2000 --quick");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.err, HasSubstr("h200"));
  EXPECT_FALSE(fs::exists(scratch() / "a.json"));
}

}  // namespace
}  // namespace longhaul
