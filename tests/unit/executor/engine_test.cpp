// Streams, events, rates, idle causes and the launch queue, against closed forms worked out in the comments.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/core/error.h"
#include "sim/executor/simulate.h"
#include "tests/unit/executor/hand_made.h"

namespace longhaul {
namespace {

using namespace hand_made;

struct Outcome {
  Totals totals;
  RecordedTimeline timeline;
  const OpRecord& op(const std::string& label, std::int32_t rank = 0, std::int16_t layer = 0) const {
    for (const OpRecord& record : timeline.ops) {
      if (record.label == label && record.rank == rank && record.layer == layer) return record;
    }
    throw std::out_of_range(label);
  }
  const RankTotals& rank(int rank) const { return totals.ranks[static_cast<std::size_t>(rank)]; }
};

Outcome run(const Schedule& schedule, const FixedDurations& durations, SimulationOptions options = {}) {
  Outcome result;
  FixedNetwork network;
  options.sink = &result.timeline;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    options.trace.ranks.push_back(static_cast<std::int32_t>(rank));
  }
  result.totals = simulate(schedule, durations, network, options);
  return result;
}

std::int64_t ps(Time time) { return time.ps(); }

TEST(Engine, ChainTakesTheSumOfItsOps) {
  Schedule schedule = make_schedule(1, {});
  add_program(schedule, 0, {kernel("a"), kernel("b"), kernel("c")});
  FixedDurations durations;
  durations.rule = by_label({{"a", 10}, {"b", 20}, {"c", 7}});
  const Outcome result = run(schedule, durations);
  EXPECT_EQ(ps(result.totals.step), 37);
  EXPECT_EQ(ps(result.rank(0).busy(Pass::kForward, OpKind::kElementwise)), 37);
  EXPECT_EQ(ps(result.rank(0).kernel_kind[static_cast<std::size_t>(KernelKind::kElementwise)]), 37);
  EXPECT_EQ(ps(result.op("b").start), 10);
  EXPECT_EQ(ps(result.op("c").end), 37);
  EXPECT_EQ(result.rank(0).ops, 3);
}

TEST(Engine, EventOrdersTwoStreams) {
  // a 0-10; b (other stream, after a) 10-17; c 10-15 beside it; d waits for b: 17-20. Idle 15-17 is data movement.
  Schedule schedule = make_schedule(1, {});
  add_program(
      schedule, 0,
      {with(kernel("a"), {}, 0), with(kernel("b", kCopyInStream), {0}, 1), kernel("c"), with(kernel("d"), {1})});
  FixedDurations durations;
  durations.rule = by_label({{"a", 10}, {"b", 7}, {"c", 5}, {"d", 3}});
  const Outcome result = run(schedule, durations);
  EXPECT_EQ(ps(result.op("b").start), 10);
  EXPECT_EQ(ps(result.op("c").start), 10);
  EXPECT_EQ(ps(result.op("d").start), 17);
  EXPECT_EQ(ps(result.totals.step), 20);
  EXPECT_EQ(ps(result.rank(0).exposed_communication), 2);
}

TEST(Engine, WaitMeansTheLatestRecordBeforeItInProgramOrder) {
  // Layer l: p (copy stream, 10) waits for slot 1, recorded by the c of layer l - 1 (never recorded in layer 0: no
  // wait) and records slot 0; c (compute, 4) waits for slot 0. So the two alternate: every layer takes 14.
  Schedule schedule = make_schedule(1, {});
  add_program(schedule, 0, {with(kernel("p", kCopyInStream), {1}, 0), with(kernel("c"), {0}, 1)}, 3);
  FixedDurations durations;
  durations.rule = by_label({{"p", 10}, {"c", 4}});
  const Outcome result = run(schedule, durations);
  EXPECT_EQ(ps(result.op("p", 0, 1).start), 14);
  EXPECT_EQ(ps(result.op("c", 0, 2).start), 38);
  EXPECT_EQ(ps(result.totals.step), 42);
  // Without the wait for slot 1 the copies run ahead: 10, 20, 30 + 4.
  schedule.segments[0].ops[0].waits.clear();
  EXPECT_EQ(ps(run(schedule, durations).totals.step), 34);
}

TEST(Engine, GuardsLeaveOpsOutOfTheFirstAndLastLayer) {
  Schedule schedule = make_schedule(1, {});
  Op not_first = kernel("f");
  not_first.guard = Guard::kNotFirstIteration;
  Op not_last = kernel("l");
  not_last.guard = Guard::kNotLastIteration;
  add_program(schedule, 0, {kernel("a"), not_first, not_last}, 4);
  FixedDurations durations;
  durations.rule = by_label({{"a", 1}, {"f", 10}, {"l", 100}});
  EXPECT_EQ(ps(run(schedule, durations).totals.step), 4 + 3 * 10 + 3 * 100);
  schedule.programs[0].blocks[0].iterations = 1;  // first and last at once
  EXPECT_EQ(ps(run(schedule, durations).totals.step), 1);
}

TEST(Engine, KernelRunsSlowerBesideATransfer) {
  // x needs 100. The transfer (60 bytes: 60 ps) runs from 30 to 90, after "pre" on its stream. With factor 2: 30 done
  // at 30; 30 more by 90; the last 40 end at 130. Then y, undisturbed: exactly 50 more.
  Schedule schedule = make_schedule(1, {"g"});
  add_group(schedule, {0}, 0);
  add_program(schedule, 0,
              {kernel("x"), kernel("pre", kFirstCommunicationStream), all_reduce("r", 0, 30), kernel("y")});
  FixedDurations durations;
  durations.rule = by_label({{"x", 100}, {"pre", 30}, {"y", 50}});
  durations.beside_communication = 2;
  const Outcome result = run(schedule, durations);
  EXPECT_EQ(ps(result.op("r").start), 30);
  EXPECT_EQ(ps(result.op("r").end), 90);
  EXPECT_EQ(ps(result.op("x").end), 130);
  EXPECT_EQ(ps(result.op("y").end), 180);
  EXPECT_EQ(ps(result.rank(0).busy()), 150);  // alone
  EXPECT_EQ(ps(result.rank(0).contention), 30);
  EXPECT_EQ(ps(result.rank(0).communication), 60);
  EXPECT_EQ(ps(result.rank(0).exposed_communication), 0);
}

TEST(Engine, KernelThatStartsBesideATransferSpeedsUpWhenItEnds) {
  // The transfer runs 0-60; x (100) starts at 0 at rate 1/1.5: 40 done by 60, ends at 120.
  Schedule schedule = make_schedule(1, {"g"});
  add_group(schedule, {0}, 0);
  add_program(schedule, 0, {all_reduce("r", 0, 30), kernel("x")});
  FixedDurations durations;
  durations.rule = by_label({{"x", 100}});
  durations.beside_communication = 1.5;
  EXPECT_EQ(ps(run(schedule, durations).op("x").end), 120);
}

TEST(Engine, HostCopySlowsKernelsAndTheLargerFactorCounts) {
  // Copy 0-40 (factor 1.25), transfer 0-20 (factor 2), x needs 50: 10 done by 20, 16 more by 40, 24 left: ends at 64.
  Schedule schedule = make_schedule(1, {"g"});
  add_group(schedule, {0}, 0);
  add_program(schedule, 0, {kernel("copy", kCopyOutStream), all_reduce("r", 0, 10), kernel("x")});
  FixedDurations durations;
  durations.rule = by_label({{"copy", 40}, {"x", 50}});
  durations.beside_communication = 2;
  durations.beside_host_copy = 1.25;
  EXPECT_EQ(ps(run(schedule, durations).op("x").end), 64);
}

TEST(Engine, LateMemberSplitsIdleIntoImbalanceAndExposedCommunication) {
  // Rank 0 computes until 10, rank 1 until 40; the transfer takes 20 (10 elements of 2 bytes), then 5 and 2 of compute.
  Schedule schedule = make_schedule(2, {"g"});
  add_group(schedule, {0, 1}, 0);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string id = std::to_string(rank);
    add_program(schedule, rank,
                {with(kernel("a" + id), {}, 0), with(all_reduce("r", 0, 10), {0}, 1), with(kernel("b" + id), {1})});
  }
  FixedDurations durations;
  durations.rule = by_label({{"a0", 10}, {"a1", 40}, {"b0", 5}, {"b1", 2}});
  const Outcome result = run(schedule, durations);
  EXPECT_EQ(ps(result.totals.step), 65);
  EXPECT_EQ(result.totals.critical_rank, 0);
  EXPECT_EQ(ps(result.rank(0).imbalance), 30);
  EXPECT_EQ(ps(result.rank(0).exposed_communication), 20);
  EXPECT_EQ(ps(result.rank(0).tail), 0);
  EXPECT_EQ(ps(result.rank(1).imbalance), 0);
  EXPECT_EQ(ps(result.rank(1).exposed_communication), 20);
  EXPECT_EQ(ps(result.rank(1).tail), 3);
  EXPECT_EQ(ps(result.op("r", 0).arrival), 10);
  EXPECT_EQ(ps(result.op("r", 0).start), 40);
  EXPECT_EQ(result.rank(0).sent_intra_node, 20);
  EXPECT_EQ(result.rank(1).received, 20);
  EXPECT_EQ(result.totals.collectives, 1);
}

TEST(Engine, ChainOfWaitsIsFollowedToItsEnd) {
  // Rank 0's compute waits for "unpack" on a third stream, which waits for the collective, which waits for rank 1 until
  // 30 (imbalance), then transfers until 50 and unpacks until 57 (exposed).
  Schedule schedule = make_schedule(2, {"g"});
  add_group(schedule, {0, 1}, 0);
  add_program(
      schedule, 0,
      {with(all_reduce("r", 0, 10), {}, 0), with(kernel("unpack", kCopyInStream), {0}, 1), with(kernel("x"), {1})});
  add_program(schedule, 1, {with(kernel("late"), {}, 0), with(all_reduce("r", 0, 10), {0})});
  FixedDurations durations;
  durations.rule = by_label({{"late", 30}, {"unpack", 7}, {"x", 3}});
  const Outcome result = run(schedule, durations);
  EXPECT_EQ(ps(result.rank(0).imbalance), 30);
  EXPECT_EQ(ps(result.rank(0).exposed_communication), 27);
  EXPECT_EQ(ps(result.totals.step), 60);
  // Rank 1 has no compute op after the collective: its own transfer is exposed, the rest is tail.
  EXPECT_EQ(ps(result.rank(1).exposed_communication), 20);
  EXPECT_EQ(ps(result.rank(1).tail), 10);
}

TEST(Engine, LaunchBoundChain) {
  // Op i is issued at 10 (i + 1) and takes 3: the last of five ends at 53; 38 of it the GPU waits for the host.
  Schedule schedule = make_schedule(1, {});
  add_program(schedule, 0, {kernel("a")}, 5);
  FixedDurations durations;
  durations.launch_ps = 10;
  durations.rule = by_label({{"a", 3}});
  const Outcome result = run(schedule, durations);
  EXPECT_EQ(ps(result.totals.step), 53);
  EXPECT_EQ(ps(result.rank(0).launch), 38);
}

TEST(Engine, LaunchQueueHoldsTheHostBack) {
  // Kernels of 100, launches of 10. With a deep queue the host is ahead: 10 + 3 x 100. With room for one pass it issues
  // the next only when the last has ended: 3 x 110.
  Schedule schedule = make_schedule(1, {});
  add_program(schedule, 0, {kernel("a")}, 3);
  FixedDurations durations;
  durations.launch_ps = 10;
  durations.rule = by_label({{"a", 100}});
  EXPECT_EQ(ps(run(schedule, durations).totals.step), 310);
  SimulationOptions options;
  options.launch_queue_passes = 1;
  EXPECT_EQ(ps(run(schedule, durations, options).totals.step), 330);
  options.launch_queue_passes = 32;
  options.launch_queue_ops = 1;
  EXPECT_EQ(ps(run(schedule, durations, options).totals.step), 330);
}

// The host is ahead of a kernel of 100 when it comes to "read", for which it waits: until 110, then 20 of stall (in the
// op's 50). So "b" is issued at 140 and not at 30, and starts at 160 when "read" has ended; "c" is issued at 150 and
// the next pass's "a" at 160: nothing is late but what the host brings late. With "read" taking 22 the device idles for
// b.
TEST(Engine, AHostThatWaitsIsNotAheadAnyMore) {
  Schedule schedule = make_schedule(1, {});
  add_program(schedule, 0, {kernel("a"), kernel("read"), kernel("b"), kernel("c", kCopyOutStream)}, 2);
  FixedDurations durations;
  durations.launch_ps = 10;
  durations.rule = by_label({{"a", 100}, {"read", 50}, {"b", 3}, {"c", 1}});
  durations.stall = by_label({{"a", -1}, {"read", 20}, {"b", -1}, {"c", -1}});
  const Outcome ahead = run(schedule, durations);
  EXPECT_EQ(ps(ahead.op("read").issue), 20);
  EXPECT_EQ(ps(ahead.op("read").start), 110);
  EXPECT_EQ(ps(ahead.op("read").stalled), 130);
  EXPECT_EQ(ps(ahead.op("b").host), 130);
  EXPECT_EQ(ps(ahead.op("b").issue), 140);
  EXPECT_EQ(ps(ahead.op("b").start), 160);
  EXPECT_EQ(ps(ahead.op("c").start), 150);
  // Second pass: "a" 163-263, "read" issued at 170, starts at 263; "b" issued at 293, starts at 313.
  EXPECT_EQ(ps(ahead.totals.step), 316);
  EXPECT_EQ(ps(ahead.rank(0).launch), 10);
  // "read" ends at 132, "b" is issued at 140: 8 of launch, until 143; the next "a" is issued at 160: 17 more. "read"
  // again at 260, "b" issued at 290: 8; until 293. "c" is issued at 300: 7.
  durations.rule = by_label({{"a", 100}, {"read", 22}, {"b", 3}, {"c", 1}});
  const Outcome late = run(schedule, durations);
  EXPECT_EQ(ps(late.op("b").start), 140);
  EXPECT_EQ(ps(late.totals.step), 301);
  EXPECT_EQ(ps(late.rank(0).launch), 10 + 8 + 17 + 8 + 7);
}

// A host that was not ahead issues nothing later for a stall of no time.
TEST(Engine, AHostThatIsBehindDoesNotWait) {
  Schedule schedule = make_schedule(1, {});
  add_program(schedule, 0, {kernel("a"), kernel("read"), kernel("b")});
  FixedDurations durations;
  durations.launch_ps = 10;
  durations.rule = by_label({{"a", 3}, {"read", 3}, {"b", 3}});
  durations.stall = by_label({{"a", -1}, {"read", 0}, {"b", -1}});
  EXPECT_EQ(ps(run(schedule, durations).op("b").issue), 30);
  durations.stall = by_label({{"a", -1}, {"read", 2}, {"b", -1}});
  EXPECT_EQ(ps(run(schedule, durations).op("b").issue), 32);
}

TEST(Engine, EmptyOpsCostNoLaunchAndKeepTheirEvents) {
  // "e" touches no bytes: no launch, no time, but the wait and the record hold.
  Schedule schedule = make_schedule(1, {});
  Op empty = with(kernel("e", kCopyInStream), {0}, 1);
  empty.operands.clear();
  add_program(schedule, 0, {with(kernel("a"), {}, 0), empty, with(kernel("b", kCopyOutStream), {1})});
  FixedDurations durations;
  durations.launch_ps = 10;
  durations.rule = by_label({{"a", 50}, {"b", 5}});
  const Outcome result = run(schedule, durations);
  EXPECT_EQ(ps(result.op("a").start), 10);
  EXPECT_EQ(ps(result.op("b").issue), 20);
  EXPECT_EQ(ps(result.op("b").start), 60);
  EXPECT_EQ(result.rank(0).ops, 2);
  EXPECT_EQ(result.totals.ops, 3);
}

TEST(Engine, AStreamMayBeginWithSeveralEmptyOps) {
  // Nothing runs before the empty ops: each stream passes over its own, then goes on. "b" waits for both.
  Schedule schedule = make_schedule(1, {});
  const auto empty = [](const char* label, StreamId stream, EventSlot event) {
    Op op = with(kernel(label, stream), {}, event);
    op.operands.clear();
    return op;
  };
  add_program(schedule, 0,
              {empty("e", kComputeStream, 0), empty("f", kComputeStream, 1), kernel("a"), empty("g", kCopyInStream, 2),
               empty("h", kCopyInStream, 3), with(kernel("b", kCopyInStream), {1, 3})},
              2);
  FixedDurations durations;
  durations.rule = by_label({{"a", 50}, {"b", 5}});
  const Outcome result = run(schedule, durations);
  EXPECT_EQ(ps(result.totals.step), 100);
  EXPECT_EQ(result.rank(0).ops, 4);
  EXPECT_EQ(result.totals.ops, 12);
}

TEST(Engine, FoldedRanksGiveTheTotalsOfTheUnfoldedRun) {
  // Two replicas of a pair with unequal work; ranks 2 and 3 are copies of 0 and 1. A group joins copies: it needs only
  // the representative.
  Schedule schedule = make_schedule(4, {"pair", "replicas"});
  add_group(schedule, {0, 1}, 0);
  add_group(schedule, {2, 3}, 0);
  add_group(schedule, {0, 2}, 1);
  add_group(schedule, {1, 3}, 1);
  for (int rank = 0; rank < 2; ++rank) {
    add_program(schedule, rank,
                {with(kernel("a" + std::to_string(rank)), {}, 0), with(all_reduce("r", 0, 10), {0}, 1),
                 with(kernel("b"), {1}, 2), with(all_reduce("s", 1, 4), {2}, 3), with(kernel("c"), {3})},
                6);
    schedule.ranks[static_cast<std::size_t>(rank + 2)].program = schedule.ranks[static_cast<std::size_t>(rank)].program;
    schedule.ranks[static_cast<std::size_t>(rank + 2)].representative = rank;
  }
  FixedDurations durations;
  durations.rule = by_label({{"a0", 10}, {"a1", 13}, {"b", 5}, {"c", 2}});
  SimulationOptions unfolded;
  unfolded.unfolded = true;
  const Outcome folded = run(schedule, durations);
  const Outcome full = run(schedule, durations, unfolded);
  EXPECT_EQ(folded.totals.ops * 2, full.totals.ops);
  EXPECT_EQ(folded.totals.step, full.totals.step);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(folded.rank(rank).end, full.rank(rank).end);
    EXPECT_EQ(folded.rank(rank).imbalance, full.rank(rank).imbalance);
    EXPECT_EQ(folded.rank(rank).exposed_communication, full.rank(rank).exposed_communication);
    EXPECT_EQ(folded.rank(rank).compute, full.rank(rank).compute);
    EXPECT_EQ(folded.rank(rank).sent_intra_node, full.rank(rank).sent_intra_node);
    EXPECT_EQ(folded.rank(rank).received, full.rank(rank).received);
    EXPECT_EQ(folded.rank(rank).peak_bytes, full.rank(rank).peak_bytes);
  }
  // The records of the running ranks are the same, too.
  std::vector<OpRecord> kept;
  std::copy_if(full.timeline.ops.begin(), full.timeline.ops.end(), std::back_inserter(kept),
               [](const OpRecord& record) { return record.rank < 2; });
  EXPECT_EQ(kept.size(), folded.timeline.ops.size());
}

TEST(Engine, SelectionLimitsRecordsToRanksAndChunks) {
  Schedule schedule = make_schedule(2, {});
  for (int rank = 0; rank < 2; ++rank) add_program(schedule, rank, {kernel("a")});
  schedule.ranks[0].shapes = {0, 0};
  Block second = schedule.programs[0].blocks[0];
  second.chunk = 1;
  schedule.programs[0].blocks.push_back(second);
  FixedDurations durations;
  RecordedTimeline timeline;
  FixedNetwork network;
  SimulationOptions options;
  options.sink = &timeline;
  options.trace.ranks = {0};
  options.trace.chunks_below = 1;
  const Totals totals = simulate(schedule, durations, network, options);
  EXPECT_EQ(totals.ops, 3);
  ASSERT_EQ(timeline.ops.size(), 1U);
  EXPECT_EQ(timeline.ops[0].rank, 0);
  EXPECT_EQ(timeline.ops[0].chunk, 0);
}

TEST(Engine, DeadlockNamesWhoWaitsForWhom) {
  Schedule schedule = make_schedule(2, {"g"});
  add_group(schedule, {0, 1}, 0);
  add_program(schedule, 0, {with(all_reduce("r", 0, 10), {}, 0), with(kernel("after"), {0})});
  add_program(schedule, 1, {kernel("a")});
  FixedDurations durations;
  try {
    run(schedule, durations);
    FAIL() << "no LimitError";
  } catch (const LimitError& error) {
    EXPECT_STREQ(error.what(),
                 "the schedule does not end: ranks wait for each other; rank 0, segment s0, layer 0, chunk 0, `after` "
                 "waits for op 1 of stream 3; rank 0, segment s0, layer 0, chunk 0, `r` waits in group 0 (1 of 2 have "
                 "arrived), missing 1");
  }
}

TEST(EngineDeathTest, MembersMustAgree) {
  Schedule schedule = make_schedule(2, {"g"});
  add_group(schedule, {0, 1}, 0);
  add_program(schedule, 0, {all_reduce("r", 0, 10)});
  add_program(schedule, 1, {all_reduce("q", 0, 11)});
  FixedDurations durations;
  EXPECT_DEATH(run(schedule, durations), "all_reduce of 22 bytes in group 0, but other members call all_reduce of 20");
  schedule.segments[1].ops[0].collective = CollectiveKind::kBroadcast;
  EXPECT_DEATH(run(schedule, durations), "broadcast of 22 bytes in group 0, but other members call all_reduce");
}

TEST(Engine, TransfersOfRepeatedLayersArePreparedOnce) {
  Schedule schedule = make_schedule(2, {"g"});
  add_group(schedule, {0, 1}, 0);
  for (int rank = 0; rank < 2; ++rank)
    add_program(schedule, rank, {all_reduce("r", 0, 10), all_reduce("q", 0, 20)}, 50);
  FixedDurations durations;
  FixedNetwork network;
  const Totals totals = simulate(schedule, durations, network);
  EXPECT_EQ(totals.collectives, 100);
  EXPECT_EQ(network.prepared, 2);
  EXPECT_EQ(ps(totals.step), 50 * 60);
}

}  // namespace
}  // namespace longhaul
