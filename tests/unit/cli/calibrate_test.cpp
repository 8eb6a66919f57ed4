// longhaul calibrate where there is no GPU: the plan, wrong input, and what it says of what is missing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/cli/command_line.h"

namespace longhaul {
namespace {

using command_line::longhaul;
using command_line::Output;
using command_line::scratch;
using testing::AnyOf;
using testing::HasSubstr;

TEST(Calibrate, PrintsItsPlanWithoutAGpu) {
  const Output table = longhaul("calibrate --plan");
  EXPECT_EQ(table.code, 0) << table.err;
  for (const char* name : {"gemm", "attention", "varlen", "diffusion", "elementwise", "copy", "launch"}) {
    EXPECT_THAT(table.out, HasSubstr(name));
  }
  const auto json = nlohmann::json::parse(longhaul("calibrate --plan --only gemm --quick --format json").out);
  EXPECT_EQ(json["calls"].size(), 12U);
  EXPECT_EQ(json["classes"][0]["class"], "gemm");
  EXPECT_GT(json["classes"][0]["predicted_seconds"], 0);
  EXPECT_THAT(
      longhaul("calibrate --plan --format csv").out,
      testing::StartsWith("class,op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces,bytes,name,predicted_ms,"));
}

TEST(Calibrate, NamesWrongInputAllAtOnce) {
  const Output output = longhaul("calibrate --out no/folder.json --only gem,copy");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.err, HasSubstr("no/folder.json: lies in no, which is no folder"));
  EXPECT_THAT(output.err, HasSubstr("--only: has \"gem\""));
  EXPECT_THAT(output.err, HasSubstr("did you mean \"gemm\"?"));
  const Output missing = longhaul("calibrate");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--out: is not given; expected the calibration to write"));
  EXPECT_EQ(longhaul("calibrate --out a.json --gpus 0").code, 2);
}

TEST(Calibrate, APlanChecksTheFileThatTheRunWouldWrite) {
  const Output output = longhaul("calibrate --plan --quick --out no/folder.json");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err, HasSubstr("no/folder.json: lies in no, which is no folder"));
  EXPECT_EQ(longhaul("calibrate --plan --quick --out a.json").code, 0);
  EXPECT_FALSE(std::filesystem::exists(scratch() / "a.json"));
}

// A build without CUDA says what is missing and how to build it; one with CUDA that there is no device.
TEST(Calibrate, SaysWhyItCannotMeasureHere) {
  const Output output = longhaul("calibrate --out a.json");
  if (output.code == 0 || std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "a GPU is here";
  EXPECT_EQ(output.code, 3);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err,
              AnyOf(HasSubstr("it was built without CUDA (no: "), HasSubstr("it was built without cuDNN (no: "),
                    HasSubstr("it was built without NCCL (no: "), HasSubstr("no CUDA device")));
  EXPECT_THAT(output.err, AnyOf(HasSubstr("meson setup --reconfigure build -Dcuda=enabled"), HasSubstr("cudaError")));
  EXPECT_FALSE(std::filesystem::exists(scratch() / "a.json"));
  EXPECT_FALSE(std::filesystem::exists(scratch() / "a.json.rows.csv"));
}

}  // namespace
}  // namespace longhaul
