#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/core/json.h"
#include "tests/unit/cli/command_line.h"

namespace longhaul::command_line {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kRows =
    "# two calls\ncollective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes,note\n"
    "all_reduce,H100-80GB,8,1,8,1048576,\"a, b\"\nalltoall,H100-80GB,8,1,8,8388608,\n";

TEST(Collective, AddsItsColumnsToCsv) {
  write("rows.csv", kRows);
  const Output output = longhaul("collective --format csv rows.csv");
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, StartsWith("collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes,note,predicted_us,"
                                     "predicted_busbw_GBps,algorithm\n"
                                     "all_reduce,H100-80GB,8,1,8,1048576,\"a, b\","));
  EXPECT_THAT(output.out, HasSubstr(",ring LL\n"));
  EXPECT_THAT(output.out, HasSubstr(",direct Simple\n"));
  // Without a terminal CSV is what is written; standard input is the default.
  EXPECT_EQ(longhaul("collective < rows.csv").out, output.out);
  EXPECT_EQ(longhaul("collective - < rows.csv").out, output.out);
}

TEST(Collective, JsonHoldsTheSameFigures) {
  write("rows.csv", kRows);
  const Output csv = longhaul("collective --format csv rows.csv");
  const Output output = longhaul("collective --format json rows.csv");
  ASSERT_EQ(output.code, 0) << output.err;
  const auto json = parse_json(output.out, "out");
  ASSERT_TRUE(json);
  ASSERT_EQ((*json)["rows"].size(), 2u);
  const Json& row = (*json)["rows"][0];
  EXPECT_EQ(row["note"], "a, b");
  EXPECT_EQ(row["algorithm"], "ring LL");
  EXPECT_THAT(csv.out, HasSubstr(fmt::format(",{:.6f},{:.6f},ring LL", row["predicted_us"].get<double>(),
                                             row["predicted_busbw_GBps"].get<double>())));
}

TEST(Collective, ATableIsForPeople) {
  write("rows.csv", kRows);
  const Output output = longhaul("collective --format table rows.csv");
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, StartsWith("collective  gpu        n_gpu  n_nodes  size_bytes"));
  EXPECT_THAT(output.out, HasSubstr("ring LL\n"));
}

TEST(Collective, AGivenTopologyIsTaken) {
  write("rows.csv", kRows);
  const Output shipped = longhaul("collective rows.csv");
  EXPECT_EQ(longhaul("collective --topology dgx-h100-ndr rows.csv").out, shipped.out);
  const Output other = longhaul("collective --topology dgx-a100-hdr rows.csv");
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.out, shipped.out);
}

TEST(Collective, FaultsAreWrongInput) {
  write("bad.csv", "collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes\nall_reduce,H99,8,1,8,0\n");
  const Output output = longhaul("collective bad.csv");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err, HasSubstr("bad.csv: line 2: size_bytes is \"0\""));
  EXPECT_THAT(output.err, HasSubstr("bad.csv: line 2/gpu: unknown GPU \"H99\""));
  EXPECT_EQ(longhaul("collective nowhere.csv").code, 2);
  EXPECT_EQ(longhaul("collective --topology nowhere bad.csv").code, 2);
  // An unset variable of a script is not the default.
  write("rows.csv", kRows);
  EXPECT_EQ(longhaul("collective --topology '' rows.csv").code, 2);
}

}  // namespace
}  // namespace longhaul::command_line
