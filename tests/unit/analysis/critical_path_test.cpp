// The critical path from hand-made records and of hand-made schedules, worked out by hand. Times in picoseconds.
#include "sim/analysis/critical_path.h"

#include <gtest/gtest.h>

#include "tests/unit/executor/hand_made.h"

namespace longhaul {
namespace {

using namespace hand_made;

Time ps(std::int64_t value) { return Time::from_ps(value); }

// "rank stream label begin-end" of every segment.
std::vector<std::string> texts(const CriticalPath& path) {
  std::vector<std::string> texts;
  for (const PathSegment& s : path.segments) {
    texts.push_back(
        fmt::format("{} {} {} {}-{}", s.rank, static_cast<int>(s.stream), s.label, s.begin.ps(), s.end.ps()));
  }
  return texts;
}

using Texts = std::vector<std::string>;

std::int64_t time_of(const CriticalPath& path, const std::string& name) {
  for (const PathClass& one : path.classes) {
    if (one.name == name) return one.time.ps();
  }
  return -1;
}

// The record of op `index` of segment `segment`, a kernel that starts when it arrives.
OpRecord record(const Schedule& schedule, SegmentId segment, std::int16_t index, std::int64_t issue,
                std::int64_t arrival, std::int64_t end) {
  const Op& op = schedule.segments[static_cast<std::size_t>(segment)].ops[static_cast<std::size_t>(index)];
  OpRecord made;
  made.rank = segment;  // one program a rank
  made.stream = op.stream;
  made.kind = op.kind;
  made.pass = op.pass;
  made.label = op.label;
  made.segment = segment;
  made.index = index;
  made.issue = ps(issue);
  made.host = ps(std::max<std::int64_t>(issue - 1, 0));  // launches of 1 ps
  made.arrival = ps(arrival);
  made.start = ps(arrival);
  made.end = ps(end);
  return made;
}

struct RanWithPath {
  Totals totals;
  RecordedTimeline timeline;
  CriticalPath path;
};

RanWithPath run(const Schedule& schedule, const FixedDurations& durations, SimulationOptions options = {}) {
  RanWithPath ran;
  FixedNetwork network;
  options.sink = &ran.timeline;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    options.trace.ranks.push_back(static_cast<std::int32_t>(rank));
  }
  ran.totals = simulate(schedule, durations, network, options);
  ran.path = critical_path(schedule, link_ops(schedule, ran.timeline.ops));
  EXPECT_EQ(ran.path.step, ran.totals.step);
  Time sum;
  for (const PathClass& one : ran.path.classes) sum += one.time;
  EXPECT_EQ(sum, ran.totals.step);
  return ran;
}

// Compute: a, then b behind the event of x. Copy-in: y, which nobody waits for; copy-out: x.
Schedule two_streams() {
  Schedule schedule = make_schedule(1, {});
  add_program(
      schedule, 0,
      {kernel("a"), kernel("y", kCopyInStream), with(kernel("x", kCopyOutStream), {}, 0), with(kernel("b"), {0})});
  return schedule;
}

// x, launched third, ends at 9 and lets b start; y ends at 9 as well, on a lower stream, but b does not wait for it.
TEST(CriticalPath, FollowsTheEventNotACoincidence) {
  const Schedule schedule = two_streams();
  const CriticalPath path =
      critical_path(schedule, link_ops(schedule, {record(schedule, 0, 0, 1, 1, 5), record(schedule, 0, 1, 2, 2, 9),
                                                  record(schedule, 0, 2, 3, 3, 9), record(schedule, 0, 3, 4, 9, 12)}));
  EXPECT_EQ(texts(path), (Texts{"0 -1 launch 0-3", "0 2 x 3-9", "0 0 b 9-12"}));
  EXPECT_EQ(path.step, ps(12));
  EXPECT_EQ(path.segments[0].ops, 3) << "a, y and x were launched one after the other";
  EXPECT_EQ(path.hops, 0);
  EXPECT_EQ(time_of(path, "host copy"), 6);
  EXPECT_EQ(time_of(path, "launch"), 3);
  EXPECT_EQ(time_of(path, "memory-bound"), 3);
  EXPECT_EQ(path.classes.front().name, "host copy") << "the longest first";
  EXPECT_EQ(path.classes.size(), 3U) << "classes that are not on the path are left out";
}

// a and x both end at 9: the compute stream first.
TEST(CriticalPath, OfTwoCausesTheComputeStreamIsTaken) {
  const Schedule schedule = two_streams();
  const CriticalPath path =
      critical_path(schedule, link_ops(schedule, {record(schedule, 0, 0, 1, 1, 9), record(schedule, 0, 1, 2, 2, 3),
                                                  record(schedule, 0, 2, 3, 3, 9), record(schedule, 0, 3, 4, 9, 12)}));
  EXPECT_EQ(texts(path), (Texts{"0 -1 launch 0-1", "0 0 a 1-9", "0 0 b 9-12"}));
}

// Records that do not fit the schedule or each other are refused.
TEST(CriticalPathDeathTest, RefusesWrongRecords) {
  const Schedule schedule = two_streams();
  const std::vector<OpRecord> good = {record(schedule, 0, 0, 1, 1, 5), record(schedule, 0, 1, 2, 2, 9),
                                      record(schedule, 0, 2, 3, 3, 9), record(schedule, 0, 3, 4, 9, 12)};
  std::vector<OpRecord> twice = good;
  twice.push_back(good[3]);
  EXPECT_DEATH(link_ops(schedule, twice), "rank 0 stream 0: 3 records, 2 are in its program");
  std::vector<OpRecord> gap = good;
  gap[3].arrival = gap[3].start = ps(10);
  EXPECT_DEATH(critical_path(schedule, link_ops(schedule, gap)), "`b` arrives at 10 ps without a cause");
}

// The all-reduce (30) is launched at 30, when "copy" ends, but a GEMM holds the device until 100: the path goes from
// the all-reduce to the GEMM, not to the copy.
TEST(CriticalPath, GoesOnAtTheKernelThatHeldACollective) {
  Schedule schedule = make_schedule(1, {"data"});
  add_group(schedule, {0}, 0);
  add_program(schedule, 0,
              {kernel("gemm a"), with(kernel("copy", kCopyInStream), {}, 0), with(all_reduce("r", 0, 15), {0}, 1),
               with(kernel("b"), {1})});
  FixedDurations durations;
  durations.rule = by_label({{"gemm a", 100}, {"copy", 30}, {"b", 5}});
  durations.holds = true;
  const RanWithPath ran = run(schedule, durations);
  EXPECT_EQ(texts(ran.path), (Texts{"0 0 gemm a 0-100", "0 3 r 100-130", "0 0 b 130-135"}));
  durations.last_wave = 0.25;  // it gives multiprocessors back at 75
  EXPECT_EQ(texts(run(schedule, durations).path), (Texts{"0 0 gemm a 0-75", "0 3 r 75-105", "0 0 b 105-110"}));
}

// Two ranks, a on rank 1 takes 30, on rank 0 10; an all-reduce of 5 elements (10 bytes: 10 ps) and b of 4 on both.
TEST(CriticalPath, GoesOnAtTheLateMember) {
  Schedule schedule = make_schedule(2, {"data"});
  for (int rank = 0; rank < 2; ++rank) {
    add_program(schedule, rank,
                {with(kernel(rank == 0 ? "a" : "slow a"), {}, 0), with(all_reduce("sum", 0, 5), {0}, 1),
                 with(kernel("b"), {1})});
  }
  add_group(schedule, {0, 1}, 0);
  FixedDurations durations;
  durations.rule = by_label({{"a", 10}, {"slow a", 30}, {"b", 4}});
  const CriticalPath path = run(schedule, durations).path;
  // Both ranks end at 44: the lower one.
  EXPECT_EQ(texts(path), (Texts{"1 0 slow a 0-30", "0 3 sum 30-40", "0 0 b 40-44"}));
  EXPECT_EQ(path.hops, 1);
  EXPECT_EQ(time_of(path, "data collective"), 10);
  EXPECT_EQ(time_of(path, "memory-bound"), 34);
}

// When all arrive together the path stays on its rank.
TEST(CriticalPath, StaysOnItsRankWhenMembersArriveTogether) {
  Schedule schedule = make_schedule(3, {"data"});
  for (int rank = 0; rank < 3; ++rank) {
    add_program(schedule, rank,
                {with(kernel("a"), {}, 0), with(all_reduce("sum", 0, 5), {0}, 1),
                 with(kernel(rank == 2 ? "slow b" : "b"), {1})});
  }
  add_group(schedule, {0, 1, 2}, 0);
  FixedDurations durations;
  durations.rule = by_label({{"a", 10}, {"b", 4}, {"slow b", 7}});
  const CriticalPath path = run(schedule, durations).path;
  EXPECT_EQ(texts(path), (Texts{"2 0 a 0-10", "2 3 sum 10-20", "2 0 slow b 20-27"}));
  EXPECT_EQ(path.hops, 0);
}

// Three stages, two micro-batches, forward only: kernels F0 F1 F2, an edge of 1 byte pair (2 ps) after F0 and F1.
Schedule pipeline() {
  Schedule schedule = make_schedule(3, {"in", "out"});
  const auto edge = [](const char* label, GroupRole role) {
    Op op = all_reduce(label, role, 1);
    op.pipeline_edge = true;
    return op;
  };
  for (int stage = 0; stage < 3; ++stage) {
    std::vector<Op> ops;
    if (stage > 0) ops.push_back(with(edge("receive", 0), {}, 0));
    ops.push_back(
        with(kernel("F" + std::to_string(stage)), stage > 0 ? std::vector<EventSlot>{0} : std::vector<EventSlot>{}, 1));
    if (stage < 2) ops.push_back(with(edge("send", 1), {1}));
    add_program(schedule, stage, ops, 2);
  }
  for (int stage = 0; stage < 2; ++stage) {
    schedule.groups.push_back({{stage, stage + 1}});
    schedule.ranks[static_cast<std::size_t>(stage)].groups[1] = stage;
    schedule.ranks[static_cast<std::size_t>(stage) + 1].groups[0] = stage;
  }
  return schedule;
}

// F1 takes 20 and holds the pipeline: F0 0-10, edge 10-12, F1 12-32 and 32-52, edge 52-54, F2 54-64.
TEST(CriticalPath, RunsThroughTheSlowStageOfAPipeline) {
  const Schedule schedule = pipeline();
  FixedDurations durations;
  durations.rule = by_label({{"F0", 10}, {"F1", 20}, {"F2", 10}});
  const CriticalPath path = run(schedule, durations).path;
  EXPECT_EQ(texts(path), (Texts{"0 0 F0 0-10", "1 3 receive 10-12", "1 0 F1 12-32", "1 0 F1 32-52", "2 3 receive 52-54",
                                "2 0 F2 54-64"}));
  EXPECT_EQ(path.hops, 2);
  EXPECT_EQ(time_of(path, "pipeline edge"), 4);
  EXPECT_EQ(time_of(path, "memory-bound"), 60);
  EXPECT_EQ(path.segments[3].layer, 1) << "iterations are not merged";

  // Without its longest op the step shrinks by no more than that op's time on the path: 64 - 40 <= 34. F0 10-20, edge
  // 20-22, F1 22, edge 22-24, F2 24-34.
  durations.rule = by_label({{"F0", 10}, {"F1", 0}, {"F2", 10}});
  EXPECT_EQ(run(schedule, durations).path.step, ps(34));
}

// Stage 0 for 10, stage 1 with its edge for 42, stage 2 with its edge for 12.
TEST(CriticalPath, StretchesStayOnOneRank) {
  FixedDurations durations;
  durations.rule = by_label({{"F0", 10}, {"F1", 20}, {"F2", 10}});
  const CriticalPath path = run(pipeline(), durations).path;
  const std::vector<PathStretch> stretches = longest_stretches(path, 2);
  ASSERT_EQ(stretches.size(), 2U);
  EXPECT_EQ(stretches[0].rank, 1);
  EXPECT_EQ(stretches[0].begin, ps(10));
  EXPECT_EQ(stretches[0].end, ps(52));
  EXPECT_EQ(stretches[0].ops, 3);
  EXPECT_EQ(path.classes[static_cast<std::size_t>(stretches[0].most)].name, "memory-bound");
  EXPECT_EQ(stretches[0].most_time, ps(40));
  EXPECT_EQ(stretches[0].longest, 2U) << "the first of the two runs of F1";
  EXPECT_EQ(stretches[1].rank, 2);
  EXPECT_EQ(stretches[1].time(), ps(12));
  EXPECT_EQ(longest_stretches(path, 10).size(), 3U);
}

// Four kernels of 3 ps, launches of 10 ps: the host is the path but for the last kernel.
TEST(CriticalPath, LaunchBound) {
  Schedule schedule = make_schedule(1, {});
  add_program(schedule, 0, {kernel("a"), kernel("a"), kernel("a"), kernel("last")});
  FixedDurations durations;
  durations.rule = by_label({{"a", 3}, {"last", 3}});
  durations.launch_ps = 10;
  const CriticalPath path = run(schedule, durations).path;
  EXPECT_EQ(texts(path), (Texts{"0 -1 launch 0-40", "0 0 last 40-43"}));
  EXPECT_EQ(path.segments[0].ops, 4);
  EXPECT_EQ(time_of(path, "launch"), 40);
}

// "read" waits for "a" and stalls for 20 of its 22; the host then issues "b" for 10: the path goes from b over the host
// into the stall, and on to what "read" waited for.
TEST(CriticalPath, GoesThroughAStall) {
  Schedule schedule = make_schedule(1, {});
  add_program(schedule, 0, {kernel("a"), kernel("read"), kernel("b")});
  FixedDurations durations;
  durations.launch_ps = 10;
  durations.rule = by_label({{"a", 100}, {"read", 22}, {"b", 3}});
  durations.stall = by_label({{"a", -1}, {"read", 20}, {"b", -1}});
  EXPECT_EQ(texts(run(schedule, durations).path),
            (Texts{"0 -1 launch 0-10", "0 0 a 10-110", "0 0 read 110-130", "0 -1 launch 130-140", "0 0 b 140-143"}));
}

// One pass in the launch queue: the host goes on when the op before has ended. 0-10, 10-13, 13-23, 23-26, 26-36, 36-39.
TEST(CriticalPath, GoesOnAtTheOpThatMadeRoomInTheQueue) {
  Schedule schedule = make_schedule(1, {});
  add_program(schedule, 0, {kernel("a")}, 3);
  FixedDurations durations;
  durations.rule = by_label({{"a", 3}});
  durations.launch_ps = 10;
  SimulationOptions options;
  options.launch_queue_passes = 1;
  const CriticalPath path = run(schedule, durations, options).path;
  EXPECT_EQ(texts(path), (Texts{"0 -1 launch 0-10", "0 0 a 10-13", "0 -1 launch 13-23", "0 0 a 23-26",
                                "0 -1 launch 26-36", "0 0 a 36-39"}));
  EXPECT_EQ(time_of(path, "launch"), 30);
}

// An empty op on copy-out hands on what it waits for.
TEST(CriticalPath, EmptyOpsPassTheirWaitsOn) {
  Schedule schedule = make_schedule(1, {});
  Op empty = with(kernel("empty", kCopyOutStream), {0}, 1);
  empty.operands = {flat_view(step_tensor(kOutKind), 0, Access::kWrite)};
  add_program(schedule, 0, {with(kernel("x", kCopyInStream), {}, 0), empty, with(kernel("b"), {1})});
  FixedDurations durations;
  durations.rule = by_label({{"x", 7}, {"b", 2}});
  const RanWithPath ran = run(schedule, durations);
  ASSERT_EQ(ran.timeline.ops.size(), 2U) << "the empty op leaves no record";
  EXPECT_EQ(texts(ran.path), (Texts{"0 1 x 0-7", "0 0 b 7-9"}));
}

// Equal neighbours are one segment; others of the same layer are not.
TEST(CriticalPath, MergesEqualNeighbours) {
  Schedule schedule = make_schedule(1, {});
  Op backward = kernel("a");
  backward.pass = Pass::kBackward;
  add_program(schedule, 0, {kernel("a"), kernel("a"), backward});
  FixedDurations durations;
  durations.rule = by_label({{"a", 3}});
  const CriticalPath path = run(schedule, durations).path;
  EXPECT_EQ(texts(path), (Texts{"0 0 a 0-6", "0 0 a 6-9"}));
  EXPECT_EQ(path.segments[0].ops, 2);
}

TEST(CriticalPath, ClassesFollowKindStreamAndPass) {
  Schedule schedule = make_schedule(1, {});
  std::vector<Op> ops = {kernel("attention"), kernel("gemm"), kernel("move"), kernel("adam"), kernel("scale")};
  ops[4].pass = Pass::kOptimizer;
  add_program(schedule, 0, ops);
  std::vector<OpRecord> records;
  const OpKind kinds[] = {OpKind::kAttention, OpKind::kGemm, OpKind::kMove, OpKind::kOptimizer, OpKind::kElementwise};
  std::int64_t now = 0;
  for (std::int16_t i = 0; i < 5; ++i) {
    records.push_back(record(schedule, 0, i, 0, now, now + 10 + i));
    records.back().kind = kinds[i];
    if (i == 3) records.back().pass = Pass::kOptimizer;
    now += 10 + i;
  }
  const CriticalPath path = critical_path(schedule, link_ops(schedule, records));
  EXPECT_EQ(path.step, ps(60));
  EXPECT_EQ(time_of(path, "attention"), 10);
  EXPECT_EQ(time_of(path, "gemm"), 11);
  EXPECT_EQ(time_of(path, "memory-bound"), 12);
  EXPECT_EQ(time_of(path, "optimizer"), 13 + 14);
  EXPECT_EQ(time_of(path, "launch"), -1);
}

TEST(CriticalPath, NothingRunsNothingIsOnThePath) {
  const Schedule schedule = make_schedule(1, {});
  const CriticalPath path = critical_path(schedule, link_ops(schedule, {}));
  EXPECT_EQ(path.step, Time::zero());
  EXPECT_TRUE(path.segments.empty());
  EXPECT_TRUE(path.classes.empty());
}

TEST(CriticalPath, CountsOpsOfRunningRanksUpToTheLimit) {
  Schedule schedule = make_schedule(3, {});
  for (int rank = 0; rank < 3; ++rank) add_program(schedule, rank, {kernel("a"), kernel("b")}, 5);
  EXPECT_EQ(count_running_ops(schedule, 100), 30);
  EXPECT_EQ(count_running_ops(schedule, 29), 30) << "one beyond the limit is enough to know";
  EXPECT_EQ(count_running_ops(schedule, 12), 13);
  schedule.ranks[2].representative = 0;
  EXPECT_EQ(count_running_ops(schedule, 100), 20);
}

}  // namespace
}  // namespace longhaul
