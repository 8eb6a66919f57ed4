#include "reports/chrome_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "tests/unit/reports/fixtures.h"

namespace longhaul {
namespace {

Json trace_of(const Traced& traced) {
  std::ostringstream out;
  write_chrome_trace(out, traced);
  return Json::parse(out.str());
}

std::vector<Json> events_of(const Json& trace, const std::string& phase) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == phase) events.push_back(event);
  }
  return events;
}

TEST(ChromeTrace, KeepsEveryPicosecond) {
  const Traced traced = testing::traced_of("a", {testing::op(0, 0, OpKind::kGemm, "x", 1'234'567, 1'234'568)});
  std::ostringstream out;
  write_chrome_trace(out, traced);
  EXPECT_NE(out.str().find("\"ts\":1.234567,\"dur\":0.000001,"), std::string::npos) << out.str();
  const Json event = events_of(Json::parse(out.str()), "X").at(0);
  EXPECT_EQ(event["args"]["start_ps"], 1'234'567);
  EXPECT_EQ(event["args"]["duration_ps"], 1);
}

TEST(ChromeTrace, EventsOfAThreadNeverOverlapAndSumToTheRecords) {
  const Traced traced = testing::small_trace("a");
  const Json trace = trace_of(traced);
  std::map<std::pair<int, int>, std::int64_t> reach, work;
  int waits = 0;
  for (const Json& event : events_of(trace, "X")) {
    const std::pair<int, int> thread(event["pid"], event["tid"]);
    const auto start = event["args"]["start_ps"].get<std::int64_t>();
    const auto duration = event["args"]["duration_ps"].get<std::int64_t>();
    EXPECT_GE(start, reach[thread]) << event;
    reach[thread] = start + duration;
    EXPECT_NEAR(event["ts"].get<double>() * 1e6, static_cast<double>(start), 0.01);
    if (event["cat"] == "wait")
      ++waits;
    else
      work[thread] += duration;
  }
  EXPECT_EQ(waits, 1);  // rank 9 arrives last and does not wait
  std::map<std::pair<int, int>, std::int64_t> expected;
  for (const OpRecord& op : traced.timeline->ops) expected[{op.rank, op.stream}] += (op.end - op.start).ps();
  EXPECT_EQ(work, expected);
}

TEST(ChromeTrace, NamesEveryRankAndStream) {
  const Json trace = trace_of(testing::small_trace("a"));
  std::set<std::string> names;
  for (const Json& event : events_of(trace, "M")) {
    if (event["args"].contains("name")) names.insert(event["args"]["name"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{"rank 0 (node 0, GPU 0)", "rank 9 (node 1, GPU 1)", "compute", "cp"}));
}

TEST(ChromeTrace, MemoryIsACounterOfEveryRank) {
  const std::vector<Json> counters = events_of(trace_of(testing::small_trace("a")), "C");
  ASSERT_EQ(counters.size(), 8u);
  EXPECT_EQ(counters[1]["args"]["bytes"], 60'000'000'000);
  EXPECT_EQ(counters[1]["ts"], 120.0);
}

TEST(ChromeTrace, LabelsAreQuoted) {
  const Traced traced = testing::traced_of("quote \" and \xff", {testing::op(0, 0, OpKind::kGemm, "a\"b\\c", 0, 1)});
  const Json trace = trace_of(traced);
  EXPECT_EQ(events_of(trace, "X").at(0)["name"], "a\"b\\c");
  EXPECT_EQ(trace["otherData"]["strategy"], "quote \" and \ufffd");
}

TEST(ChromeTrace, AnEmptyTraceIsValid) { EXPECT_TRUE(trace_of(testing::traced_of("a", {}))["traceEvents"].empty()); }

}  // namespace
}  // namespace longhaul
