// The critical path of real strategies: exact sums, intervals of records, hops only where a member was late.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "sim/analysis/critical_path.h"
#include "sim/executor/simulate.h"
#include "sim/study/entry_run.h"

namespace longhaul {
namespace {

constexpr const char* kStudy = R"({
  "schema": "study/1", "name": "small", "topology": "dgx-h200-ndr", "gpus": 16, "model": "llama3-8b",
  "documents": {"explicit": [[4096, 100], [3000], [2000, 2000], [4000]]},
  "training": {"zero_stage": 3, "recompute": "full"},
  "strategies": ["allgather-cp", "zigzag-cp", "flashcp", "ulysses", {"name": "basp", "micro_batch_sequences": 2},
                 "dpp"],
  "baseline": "allgather-cp"})";

class CriticalPathOfStrategy : public testing::TestWithParam<std::size_t> {};

struct RunOnce {
  Totals totals;
  RecordedTimeline timeline;
};

RunOnce run_all(const Schedule& schedule, const CaseSetup& setup) {
  RunOnce ran;
  SimulationOptions options;
  options.sink = &ran.timeline;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    options.trace.ranks.push_back(static_cast<std::int32_t>(rank));
  }
  ran.totals = simulate(schedule, setup.cluster, setup.kernels, options);
  return ran;
}

// Records by what a segment says of its place.
using Place = std::tuple<std::int32_t, StreamId, std::string_view, Pass, std::int16_t, std::int32_t>;
std::map<Place, std::vector<const OpRecord*>> by_place(const RecordedTimeline& timeline) {
  std::map<Place, std::vector<const OpRecord*>> records;
  for (const OpRecord& r : timeline.ops) records[{r.rank, r.stream, r.label, r.pass, r.layer, r.chunk}].push_back(&r);
  return records;
}

// Whether a collective that kernels of the rank kept off its device got onto it then.
bool was_held(const RecordedTimeline& timeline, std::int32_t rank, Time until) {
  return std::any_of(timeline.ops.begin(), timeline.ops.end(), [&](const OpRecord& r) {
    return r.rank == rank && r.kind == OpKind::kCollective && r.called < r.arrival && r.arrival == until;
  });
}

TEST_P(CriticalPathOfStrategy, SumsToTheStepAndIsMadeOfRecords) {
  const auto json = parse_json(kStudy, "small.json");
  ASSERT_TRUE(json.has_value());
  const auto study = parse_study(*json, "small.json", study_options());
  ASSERT_TRUE(study.has_value());
  const CaseSetup setup = *set_up_case(study->cases[0], study->file);
  const StrategyEntry& entry = study->cases[0].strategies[GetParam()];
  const Planned planned = plan_entry(setup, entry, *entry_degrees(setup, entry), 0);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  const Schedule& schedule = *planned->schedule;
  const RunOnce ran = run_all(schedule, setup);
  const auto path = trace_critical_path(schedule, setup.cluster, setup.kernels);
  ASSERT_TRUE(path.has_value());
  EXPECT_EQ(path->step, ran.totals.step);
  EXPECT_FALSE(trace_critical_path(schedule, setup.cluster, setup.kernels, 1000).has_value()) << "above the limit";

  const auto records = by_place(ran.timeline);
  Time end;
  Time sum;
  std::int64_t hops = 0;
  const PathSegment* last = nullptr;
  for (const PathSegment& s : path->segments) {
    ASSERT_EQ(s.begin, end);
    end = s.end;
    sum += s.time();
    const bool hop = last != nullptr && last->rank != s.rank;
    hops += hop ? 1 : 0;
    last = &s;
    if (s.stream == kHostStream) {
      EXPECT_FALSE(hop) << "the host serves its own rank";
      continue;
    }
    // The records of this place fill the segment; the last one may go on where a collective was held until then.
    Time filled;
    std::int64_t ops = 0;
    for (const OpRecord* r : records.at({s.rank, s.stream, s.label, s.pass, s.layer, s.chunk})) {
      if (r->start < s.begin || r->start >= s.end || r->start == r->end) continue;
      filled += std::min(r->end, s.end) - r->start;
      ++ops;
      if (r->end > s.end) {
        EXPECT_TRUE(was_held(ran.timeline, s.rank, s.end)) << s.label << " cut short at " << s.end.ps();
      }
      if (r->start == s.begin) {
        EXPECT_TRUE(!hop || (r->kind == OpKind::kCollective && r->arrival < r->start))
            << "a hop where nobody was waited for, at " << s.begin.ps();
      }
    }
    EXPECT_EQ(filled, s.time()) << s.label << " at " << s.begin.ps();
    EXPECT_EQ(ops, s.ops) << s.label << " at " << s.begin.ps();
  }
  EXPECT_EQ(sum, ran.totals.step);
  EXPECT_EQ(hops, path->hops);
  Time classes;
  for (std::size_t i = 0; i < path->classes.size(); ++i) {
    classes += path->classes[i].time;
    if (i > 0) {
      EXPECT_LE(path->classes[i].time, path->classes[i - 1].time);
    }
  }
  EXPECT_EQ(classes, ran.totals.step);
}

std::string strategy_name(const testing::TestParamInfo<std::size_t>& info) {
  static constexpr const char* kNames[] = {"AllgatherCp", "ZigzagCp", "Flashcp", "Ulysses", "Basp", "Dpp"};
  return kNames[info.param];
}
INSTANTIATE_TEST_SUITE_P(All, CriticalPathOfStrategy, testing::Range<std::size_t>(0, 6), strategy_name);

}  // namespace
}  // namespace longhaul
