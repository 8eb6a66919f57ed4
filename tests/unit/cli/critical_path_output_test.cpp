// The critical path as text and JSON: the exact block of a hand-made path, and what stands there without one.
#include "sim/cli/critical_path_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

Time ms(std::int64_t value) { return Time::from_ps(value * 1'000'000'000); }

// Rank 0 launches for 1 ms and computes for 30, rank 1 takes 9 for a collective of role "data".
CriticalPath small_path() {
  CriticalPath path;
  path.step = ms(40);
  path.hops = 1;
  path.classes = {{"gemm", ms(30), 1}, {"data collective", ms(9), 1}, {"launch", ms(1), 2}};
  path.segments = {{0, kHostStream, "launch", 2, Pass::kForward, 0, 0, 2, ms(0), ms(1)},
                   {0, kComputeStream, "qkv", 0, Pass::kForward, 3, 0, 1, ms(1), ms(31)},
                   {1, kFirstCommunicationStream, "sum", 1, Pass::kBackward, 3, -1, 1, ms(31), ms(40)}};
  return path;
}

Schedule schedule_of() {
  Schedule schedule;
  schedule.roles = {"data"};
  return schedule;
}

TEST(CriticalPathOutput, TextIsABlockOfTheTable) {
  EXPECT_EQ(critical_path_text(small_path(), 1), R"(
  critical path: 40.0 ms in 3 segments, 1 hop between ranks
  on the path                   time ms   share %       ops
  gemm                             30.0      75.0         1
  data collective                   9.0      22.5         1
  launch                            1.0       2.5         2
  If gemm took no time and all else as long as now, the step would shrink by at most 30.0 ms; so for
  every class: by at most its time on the path, less where another path is nearly as long.

  rank     from ms   time ms  most of it                 longest op (the 10 longest stretches on one rank)
  0            0.0      31.0  gemm 97 %                  qkv, forward, layer 3, chunk 0: 30.0 ms
  1           31.0       9.0  data collective 100 %      sum, backward, layer 3: 9.0 ms
)");
  EXPECT_NE(critical_path_text(small_path(), 3).find("critical path of step 1: "), std::string::npos);
}

TEST(CriticalPathOutput, WithoutAPathItSaysWhy) {
  const std::string why = "left out: the step has more than 2000000 ops; fewer GPUs or sequences make it traceable";
  EXPECT_EQ(critical_path_text(std::nullopt, 1), "\n  critical path: " + why + "\n");
  EXPECT_EQ(critical_path_json(schedule_of(), std::nullopt), Json({{"left_out", why}}));
}

TEST(CriticalPathOutput, JsonNamesStreamsAndClasses) {
  const Json json = critical_path_json(schedule_of(), small_path());
  EXPECT_EQ(json["rank_hops"], 1);
  EXPECT_EQ(json["segment_count"], 3);
  EXPECT_EQ(json["summary"][1]["class"], "data collective");
  EXPECT_DOUBLE_EQ(json["summary"][0]["share"].get<double>(), 0.75);
  const char* streams[] = {"host", "compute", "data"};
  const char* classes[] = {"launch", "gemm", "data collective"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["segments"][i]["stream"], streams[i]);
    EXPECT_EQ(json["segments"][i]["class"], classes[i]);
  }
  EXPECT_EQ(json["segments"][2]["chunk"], nullptr);
  EXPECT_EQ(json["segments"][2]["end_ms"], 40.0);
}

}  // namespace
}  // namespace longhaul
