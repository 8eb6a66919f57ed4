// The functions that compute view data: numbers, axes, bars, curves, marks.
#include <gtest/gtest.h>

#include <numeric>

#include "reports/format.h"
#include "reports/memory_curve.h"
#include "reports/step_bars.h"
#include "reports/timeline_marks.h"
#include "tests/unit/reports/fixtures.h"

namespace longhaul {
namespace {

using testing::op;
using testing::results_of;
using testing::row;
using testing::traced_of;

TEST(Format, Numbers) {
  EXPECT_EQ(format_number(1234567.25, 1), "1\u202f234\u202f567.2");
  EXPECT_EQ(format_number(-1234, 0), "\u22121\u202f234");
  EXPECT_EQ(format_number(-0.001, 1), "0.0");
  EXPECT_EQ(format_bytes(999.96e9), "1.00\u00a0TB");
  EXPECT_EQ(format_bytes(139.8e9), "140\u00a0GB");
  EXPECT_EQ(format_bytes(0), "0\u00a0B");
  EXPECT_EQ(format_bytes_range(1e9, 3e9), "1.00\u2009\u2013\u20093.00\u00a0GB");
  EXPECT_EQ(format_bytes_range(1e6, 3e9), "1.00\u00a0MB\u2009\u2013\u20093.00\u00a0GB");
  EXPECT_EQ(format_percent(0.4125), "41.2\u00a0%");
  EXPECT_EQ(format_duration(0.5), "500.0\u00a0\u00b5s");
  EXPECT_EQ(format_duration(1932.4), "1\u202f932\u00a0ms");
  EXPECT_EQ(format_duration(24760), "24.76\u00a0s");
}

TEST(Format, EscapesForHtmlAndScripts) {
  EXPECT_EQ(escape_html("<a href=\"x\">&'\x01"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\ufffd");
  const std::string json = Json("</script><!-- 1 < 2 -->").dump();
  const std::string escaped = escape_script_json(json);
  EXPECT_EQ(escaped.find("</"), std::string::npos);
  EXPECT_EQ(escaped.find("<!"), std::string::npos);
  EXPECT_EQ(Json::parse(escaped), Json::parse(json));
}

TEST(Axis, TicksAreRoundAndReachTheLargest) {
  EXPECT_EQ(axis_ticks(26.1, 6), (std::vector<double>{0, 5, 10, 15, 20, 25, 30}));
  EXPECT_EQ(axis_ticks(0, 5), (std::vector<double>{0, 1}));
  for (const double largest : {1e-6, 0.37, 1.0, 9.99, 10.0, 123.0, 7.7e11}) {
    for (const int about : {3, 5, 6}) {
      const std::vector<double> ticks = axis_ticks(largest, about);
      EXPECT_GE(ticks.back(), largest * (1 - 1e-9)) << largest;
      EXPECT_LT(ticks[ticks.size() - 2], largest) << largest;
      EXPECT_LE(static_cast<int>(ticks.size()), about + 1) << largest;
    }
  }
  EXPECT_EQ(tick_decimals({0, 0.05}), 2);
  EXPECT_EQ(tick_decimals({0, 5}), 0);
}

TEST(StepBars, SegmentsTouchAndSumToTheStep) {
  Json odd = row("a", 1000, 900, 1100);
  odd["time_ms"] = {{"unheard_of", 100.0}, {"imbalance", 200.0}, {"compute", 700.0}};
  const ResultCase one = read_result_rows(results_of({odd}, "a")).at(0);
  const StepBars view = step_bars(one);
  ASSERT_EQ(view.bars.size(), 1u);
  const StepBar& bar = view.bars[0];
  double reach = 0;
  for (const BarSegment& part : bar.segments) {
    EXPECT_DOUBLE_EQ(part.start_ms, reach);
    reach += part.length_ms;
  }
  EXPECT_DOUBLE_EQ(reach, bar.step_ms);
  // Known parts first, in the fixed order, whatever the order in the file.
  EXPECT_EQ(view.parts, (std::vector<std::string>{"compute", "imbalance", "unheard_of"}));
  EXPECT_EQ(bar.segments[2].colour, static_cast<int>(time_parts().size()));
  EXPECT_GE(view.right_ms, 1100);
}

TEST(StepBars, RowsWithoutATimeHaveNoBar) {
  const ResultCase one = read_result_rows(testing::small_results()).at(0);
  const StepBars view = step_bars(one);
  ASSERT_EQ(view.bars.size(), 3u);  // csbp does not apply
  EXPECT_EQ(view.bars[2].row, 2);   // does not fit, keeps its time
}

TEST(MemoryCurve, TakesTheRankWithTheHighestPeak) {
  const MemoryCurve curve = memory_curve(testing::small_trace("a"), 100);
  EXPECT_EQ(curve.rank, 0);  // rank 9 peaks nine bytes lower
  EXPECT_EQ(curve.peak, (MemoryPoint{Time::from_us(120), 60'000'000'000}));
  EXPECT_EQ(curve.points.size(), 4u);
  EXPECT_EQ(memory_curve(traced_of("a", {}), 100).rank, -1);
}

TEST(MemoryCurve, OfSamplesAtOneTimeTheLastHolds) {
  const MemoryCurve curve =
      memory_curve(traced_of("a", {}, {{0, Time(), 5}, {0, Time(), 3}, {0, Time::from_ps(1), 4}}), 8);
  EXPECT_EQ(curve.points, (std::vector<MemoryPoint>{{Time(), 3}, {Time::from_ps(1), 4}}));
  EXPECT_EQ(curve.peak.bytes, 4);
}

TEST(MemoryCurve, ThinningKeepsEndsAndExtremes) {
  std::vector<MemoryPoint> points;
  for (std::int64_t i = 0; i < 10'000; ++i) points.push_back({Time::from_ps(i * 7), (i * 7919) % 1000});
  points[4321].bytes = 5000;
  points[777].bytes = -3;
  const std::vector<MemoryPoint> thinned = thin_curve(points, 100);
  EXPECT_LE(thinned.size(), 100u);
  EXPECT_EQ(thinned.front(), points.front());
  EXPECT_EQ(thinned.back(), points.back());
  EXPECT_EQ(std::count(thinned.begin(), thinned.end(), points[4321]), 1);
  EXPECT_EQ(std::count(thinned.begin(), thinned.end(), points[777]), 1);
  for (std::size_t i = 1; i < thinned.size(); ++i) EXPECT_LT(thinned[i - 1].time, thinned[i].time);
}

TEST(TimelineMarks, FewOpsStayOneMarkEach) {
  const TimelineView view = timeline_view(testing::small_trace("a"), 1000);
  ASSERT_EQ(view.rows.size(), 4u);  // two ranks, two streams
  EXPECT_EQ(view.marks(), 10u);
  EXPECT_EQ(view.resolution, Time());
  EXPECT_EQ(view.ops_outside, 0);
  EXPECT_EQ(view.rows[1].marks[0].colour, kFirstCollectiveClass);
  EXPECT_EQ(view.rows[1].marks[0].start, Time::from_us(120));  // not when it began to wait
}

TEST(TimelineMarks, MergingKeepsCountsAndBusyTime) {
  // 3,000 ops of 7 ps every 10 ps on one row, alternately two classes, and one long op behind them.
  std::vector<OpRecord> ops;
  for (std::int64_t i = 0; i < 3000; ++i) {
    ops.push_back(op(0, 0, i % 3 == 0 ? OpKind::kGemm : OpKind::kElementwise, "x", 10 * i, 10 * i + 7));
  }
  ops.push_back(op(0, 0, OpKind::kAttention, "long", 30'000, 60'000));
  const TimelineView view = timeline_view(traced_of("a", ops), 100);
  EXPECT_LE(view.marks(), 100u);
  EXPECT_GT(view.marks(), 30u);  // no more merging than needed
  ASSERT_EQ(view.rows.size(), 1u);
  std::int64_t count = 0, busy = 0;
  Time reach;
  for (const Mark& mark : view.rows[0].marks) {
    EXPECT_GE(mark.start, reach);
    reach = mark.end;
    count += mark.count;
    busy += mark.busy.ps();
    if (mark.count == 1) continue;
    EXPECT_LE(mark.end - mark.start, view.resolution);
    EXPECT_EQ(mark.colour, kMemoryClass);  // two of three ops
    const auto sum = std::accumulate(mark.shares.begin(), mark.shares.end(), Time(),
                                     [](Time total, const auto& share) { return total + share.second; });
    EXPECT_EQ(sum, mark.busy);
  }
  EXPECT_EQ(count, 3001);
  EXPECT_EQ(busy, 3000 * 7 + 30'000);
  EXPECT_EQ(view.rows[0].marks.back().colour, kAttentionClass);
  EXPECT_EQ(view.rows[0].marks.back().count, 1);
}

TEST(TimelineMarks, FarOpsAreLeftOutAndCounted) {
  // One traced micro-batch, then the optimizer at the end of a long step.
  const TimelineView view = timeline_view(
      traced_of("a", {op(0, 0, OpKind::kGemm, "x", 0, 100), op(0, 0, OpKind::kOptimizer, "o", 900, 950)}), 100);
  EXPECT_EQ(view.ops, 1);
  EXPECT_EQ(view.end, Time::from_ps(100));
  EXPECT_EQ(view.ops_outside, 1);
  EXPECT_EQ(view.outside_begin, Time::from_ps(900));
  EXPECT_EQ(view.outside_end, Time::from_ps(950));
}

TEST(TimelineMarks, OfManyRanksTheLastToEndIsDrawn) {
  std::vector<OpRecord> ops;
  for (std::int32_t rank = 0; rank < 12; ++rank)
    ops.push_back(op(rank, 0, OpKind::kGemm, "x", 0, rank == 10 ? 200 : 100));
  const TimelineView view = timeline_view(traced_of("a", ops), 1000, 3);
  ASSERT_EQ(view.rows.size(), 3u);
  EXPECT_EQ(view.rows[1].rank, 1);
  EXPECT_EQ(view.rows[2].rank, 10);
  EXPECT_EQ(view.ranks_traced, 12);
}

TEST(TimelineMarks, NoOpsNoRows) { EXPECT_TRUE(timeline_view(traced_of("a", {}), 100).rows.empty()); }

}  // namespace
}  // namespace longhaul
