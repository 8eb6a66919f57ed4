// Two timelines in one Chrome trace: rows above each other, exact times, what is the model's says so.
#include "reports/double_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace longhaul {
namespace {

DoubleOp op(StreamId stream, const char* label, std::int64_t start, std::int64_t end) {
  DoubleOp one;
  one.rank = 1;
  one.stream = stream;
  one.label = label;
  one.kind = "gemm";
  one.pass = "forward";
  one.shape = "8 x 8 x 8";
  one.layer = kNoLayer;
  one.predicted = {Time::from_ps(start), Time::from_ps(end)};
  return one;
}

nlohmann::json trace_of(const DoubleTimeline& timeline, bool composed) {
  std::ostringstream out;
  write_double_trace(out, {"case", "flashcp", composed}, timeline);
  return nlohmann::json::parse(out.str());
}

DoubleTimeline two_ops() {
  DoubleTimeline timeline;
  timeline.streams = {"compute", "copy-in", "copy-out", "cp"};
  timeline.ops = {op(0, "qkv \"gemm\"", 0, 1'100'000), op(3, "gather", 1'100'000, 2'000'001)};
  timeline.ops[0].measured = {Time::from_ps(5), Time::from_ps(1'000'005)};
  timeline.ops[1].measured = {Time::from_ps(1'000'005), Time::from_ps(1'900'006)};
  timeline.ops[1].modelled = true;
  return timeline;
}

TEST(DoubleTrace, PredictedStandsAboveMeasured) {
  const nlohmann::json trace = trace_of(two_ops(), false);
  std::vector<std::string> threads;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") {
      threads.push_back(std::to_string(event["tid"].get<int>()) + " " + event["args"]["name"].get<std::string>());
    }
  }
  EXPECT_EQ(threads, (std::vector<std::string>{"0 compute: predicted", "1 compute: measured", "6 cp: predicted",
                                               "7 cp: measured"}));
}

TEST(DoubleTrace, TimesAreExactAndErrorsAreTold) {
  const nlohmann::json trace = trace_of(two_ops(), true);
  EXPECT_EQ(trace["otherData"]["lower_rows"], "measured kernels, modelled transfers");
  std::vector<nlohmann::json> events;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") events.push_back(event);
  }
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[1]["name"], "qkv \"gemm\"");
  EXPECT_EQ(events[1]["pid"], 1);
  EXPECT_EQ(events[1]["tid"], 1);
  EXPECT_EQ(events[1]["args"]["start_ps"], 5);
  EXPECT_EQ(events[1]["args"]["duration_ps"], 1'000'000);
  EXPECT_DOUBLE_EQ(events[1]["args"]["error"], 0.1);
  EXPECT_EQ(events[3]["args"]["source"], "model");
  EXPECT_FALSE(events[3]["args"].contains("error"));
  EXPECT_DOUBLE_EQ(events[2]["dur"], 0.900001);
}

TEST(DoubleTrace, WhatWasNotMeasuredStandsAlone) {
  DoubleTimeline timeline = two_ops();
  timeline.ops[0].measured.reset();
  const nlohmann::json trace = trace_of(timeline, false);
  int events = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) events += event["ph"] == "X" ? 1 : 0;
  EXPECT_EQ(events, 3);
}

}  // namespace
}  // namespace longhaul
