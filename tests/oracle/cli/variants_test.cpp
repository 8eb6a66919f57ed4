// Every variant of the context-parallel family through the command: the shipped study "context-parallel-variants" gives
// the same bytes in two processes with one thread and with two, each row has run, and its times add up exactly.
//
// _ms values are decimals of integer picoseconds (9 places): they are compared as such.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/unit/cli/command_line.h"

namespace longhaul {
namespace {

using command_line::longhaul;
using command_line::Output;
using command_line::read;
using command_line::scratch;
using Json = nlohmann::ordered_json;

std::int64_t picoseconds(const Json& milliseconds) { return std::llround(milliseconds.get<double>() * 1e9); }

std::string results_of(const std::string& folder, int threads) {
  const Output output =
      longhaul("compare context-parallel-variants --quiet --out " + folder + " --threads " + std::to_string(threads));
  EXPECT_EQ(output.code, 0) << output.err;
  return read(scratch() / folder / "results.json");
}

// Of one rank over the step: compute, what it was slowed, and idle time by cause.
std::int64_t rank_time(const Json& rank) {
  std::int64_t sum = 0;
  for (const char* part : {"compute_ms", "contention_ms", "exposed_communication_ms", "bubble_ms", "imbalance_ms",
                           "launch_ms", "tail_ms"}) {
    sum += picoseconds(rank.at(part));
  }
  return sum;
}

TEST(VariantsOracle, SameBytesAndTimesAddUp) {
  const std::string text = results_of("one", 1);
  ASSERT_FALSE(text.empty());
  EXPECT_TRUE(text == results_of("two", 2)) << "results.json differs between one thread and two";
  const Json results = Json::parse(text);
  std::size_t rows = 0;
  for (const Json& of_case : results.at("study").at("cases")) rows += of_case.at("strategies").size();
  ASSERT_GE(rows, 50u);
  EXPECT_EQ(results.at("strategies").size(), rows);
  for (const Json& row : results.at("strategies")) {
    SCOPED_TRACE(row.at("case").get<std::string>() + ": " + row.at("name").get<std::string>());
    ASSERT_TRUE(row.contains("step_time_ms"));
    EXPECT_GT(picoseconds(row.at("step_time_ms")), 0);
    std::int64_t sum = 0;
    for (const Json& part : row.at("time_ms")) sum += picoseconds(part);
    EXPECT_EQ(sum, picoseconds(row.at("step_time_ms")));
    std::int64_t kinds = 0;
    for (const Json& part : row.at("compute_ms")) kinds += picoseconds(part);
    EXPECT_EQ(kinds, picoseconds(row.at("time_ms").at("compute")));
    ASSERT_EQ(row.at("ranks").size(), 16u);
    const std::int64_t step = rank_time(row.at("ranks").front());
    for (const Json& rank : row.at("ranks")) EXPECT_EQ(rank_time(rank), step);
  }
}

}  // namespace
}  // namespace longhaul
