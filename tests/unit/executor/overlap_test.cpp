// Kernels, copies and transfers that run side by side, against closed forms worked out in the comments.
#include <gtest/gtest.h>

#include "sim/executor/simulate.h"
#include "tests/unit/executor/hand_made.h"

namespace longhaul {
namespace {

using namespace hand_made;

constexpr StreamId kOther = kFirstCommunicationStream;  // of role 0, beside the compute stream

struct OverlapOutcome {
  Totals totals;
  RecordedTimeline timeline;
  std::int64_t slowed = 0;
  const OpRecord& op(const std::string& label, std::int32_t rank = 0) const {
    for (const OpRecord& record : timeline.ops) {
      if (record.label == label && record.rank == rank) return record;
    }
    throw std::out_of_range(label);
  }
  std::int64_t start(const std::string& label, std::int32_t rank = 0) const { return op(label, rank).start.ps(); }
  std::int64_t end(const std::string& label, std::int32_t rank = 0) const { return op(label, rank).end.ps(); }
  const RankTotals& rank(int rank) const { return totals.ranks[static_cast<std::size_t>(rank)]; }
};

OverlapOutcome run_beside(const Schedule& schedule, const FixedDurations& durations) {
  OverlapOutcome result;
  FixedNetwork network;
  SimulationOptions options;
  options.sink = &result.timeline;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    options.trace.ranks.push_back(static_cast<std::int32_t>(rank));
  }
  result.totals = simulate(schedule, durations, network, options);
  result.slowed = network.slowed;
  return result;
}

Schedule one_rank() {
  Schedule schedule = make_schedule(1, {"g"});
  add_group(schedule, {0}, 0);
  return schedule;
}

TEST(Overlap, TwoKernelsSlowEachOtherWhileBothRun) {
  // x (100) on the compute stream and y (30) on another, factor 1.5 while both run. y: 45 long. x: 30 done by 45, then
  // alone: ends at 45 + 70 = 115, 15 of it contention. The same from y's side when x is the shorter one.
  for (const bool x_first : {true, false}) {
    Schedule schedule = one_rank();
    add_program(schedule, 0,
                {kernel("x", x_first ? kComputeStream : kOther), kernel("y", x_first ? kOther : kComputeStream)});
    FixedDurations durations;
    durations.rule = by_label({{"x", 100}, {"y", 30}});
    durations.beside_kernel = 1.5;
    const OverlapOutcome result = run_beside(schedule, durations);
    EXPECT_EQ(result.end("y"), 45);
    EXPECT_EQ(result.end("x"), 115);
    EXPECT_EQ(result.totals.step.ps(), 115);
    EXPECT_EQ(result.rank(0).contention.ps(), 15);
    EXPECT_EQ(result.rank(0).busy().ps(), x_first ? 100 : 30);
    EXPECT_EQ(result.rank(0).exposed_communication.ps(), x_first ? 0 : 70);
  }
}

TEST(Overlap, APartlyOverlappedKernelTakesWorkPlusTheExtraOfThatPart) {
  // x needs W = 200; on another stream pre (40) and then y (60), factor 1.25 while two run: pre takes 0-50, y 50-125. x
  // has done 125 / 1.25 = 100 by then and ends at 225 = W + (1 - 1 / 1.25) x 125.
  Schedule schedule = one_rank();
  add_program(schedule, 0, {kernel("x"), kernel("pre", kOther), kernel("y", kOther)});
  FixedDurations durations;
  durations.rule = by_label({{"x", 200}, {"pre", 40}, {"y", 60}});
  durations.beside_kernel = 1.25;
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.end("pre"), 50);
  EXPECT_EQ(result.end("y"), 125);
  EXPECT_EQ(result.end("x"), 225);
}

TEST(Overlap, ATransferBesideTheMiddleOfAKernel) {
  // x needs W = 100, the transfer lies in [a, b] = [30, 90] and is itself not slowed: x runs at 1 / f, f = 1.5, for
  // b - a, so it ends at W + (b - a)(1 - 1 / f) = 120.
  Schedule schedule = one_rank();
  add_program(schedule, 0, {kernel("gemm x"), kernel("copy", kCopyInStream), with(all_reduce("r", 0, 30), {0})});
  schedule.segments[0].ops[1].record = 0;
  FixedDurations durations;
  durations.rule = by_label({{"gemm x", 100}, {"copy", 30}});
  durations.beside_communication = 1.5;
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.start("r"), 30);
  EXPECT_EQ(result.end("r"), 90);
  EXPECT_EQ(result.end("gemm x"), 120);
}

TEST(Overlap, ATransferTakesLongerBesideAKernel) {
  // The transfer needs 100 and starts at 0 beside x (30): at factor 2, 15 done by 30, 85 left: ends at 115. Then y.
  Schedule schedule = one_rank();
  add_program(schedule, 0, {with(all_reduce("r", 0, 50), {}, 0), kernel("x"), with(kernel("y"), {0})});
  FixedDurations durations;
  durations.rule = by_label({{"x", 30}, {"y", 7}});
  durations.transfers[static_cast<std::size_t>(OverlapClass::kMemory)] = 2;
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.end("x"), 30);  // kernels are not slowed here
  EXPECT_EQ(result.end("r"), 115);
  EXPECT_EQ(result.end("y"), 122);
  EXPECT_EQ(result.rank(0).exposed_communication.ps(), 85);
  EXPECT_EQ(result.rank(0).communication.ps(), 115);
  EXPECT_EQ(result.rank(0).contention.ps(), 0);
  EXPECT_EQ(result.slowed, 2);  // and back
}

TEST(Overlap, BothSlowEachOther) {
  // x (60) beside a transfer (100) from 0: x at factor 1.5 ends at 90; the transfer at factor 1.25 has done 72 by then
  // and ends at 118.
  Schedule schedule = one_rank();
  add_program(schedule, 0, {all_reduce("r", 0, 50), kernel("x")});
  FixedDurations durations;
  durations.rule = by_label({{"x", 60}});
  durations.beside_communication = 1.5;
  durations.transfers[static_cast<std::size_t>(OverlapClass::kMemory)] = 1.25;
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.end("x"), 90);
  EXPECT_EQ(result.end("r"), 118);
}

TEST(Overlap, ACollectiveGoesAsSlowAsItsSlowestMember) {
  // Two ranks start a transfer (100) at 0. Rank 0 runs a memory-bound kernel (40; factor 2 on the transfer), rank 1 a
  // GEMM (80; factor 1.25). Until 40 the transfer goes at 1/2: 20 done; until 80 at 1/1.25: 32 more; 48 left: 128.
  Schedule schedule = make_schedule(2, {"g"});
  add_group(schedule, {0, 1}, 0);
  add_program(schedule, 0, {all_reduce("r", 0, 50), kernel("memory")});
  add_program(schedule, 1, {all_reduce("r", 0, 50), kernel("gemm")});
  FixedDurations durations;
  durations.rule = by_label({{"memory", 40}, {"gemm", 80}});
  durations.transfers = {1.25, 1, 2, 1};
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.end("r", 0), 128);
  EXPECT_EQ(result.end("r", 1), 128);
  EXPECT_EQ(result.slowed, 3);
}

TEST(Overlap, KernelsInARowPressAsOne) {
  // Four GEMMs of 10 without a gap between them: the network hears of the first start and the last end alone, and a
  // transfer of 100 at factor 1.25 has done 32 by 40: ends at 108.
  Schedule schedule = one_rank();
  add_program(schedule, 0,
              {all_reduce("r", 0, 50), kernel("gemm a"), kernel("gemm b"), kernel("gemm c"), kernel("gemm d")});
  FixedDurations durations;
  durations.rule = [](const OpInstance&) { return 10; };
  durations.transfers[static_cast<std::size_t>(OverlapClass::kGemm)] = 1.25;
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.end("r"), 108);
  EXPECT_EQ(result.slowed, 2);
}

TEST(Overlap, PressureHoldsForTheNextTransferOfAGroup) {
  // Two transfers of 20 in a row beside a kernel of 60 at factor 1.5: 30 each; the third (20) runs alone from 60 on.
  Schedule schedule = one_rank();
  add_program(schedule, 0, {all_reduce("a", 0, 10), all_reduce("b", 0, 10), all_reduce("c", 0, 10), kernel("x")});
  FixedDurations durations;
  durations.rule = by_label({{"x", 60}});
  durations.transfers[static_cast<std::size_t>(OverlapClass::kMemory)] = 1.5;
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.end("a"), 30);
  EXPECT_EQ(result.end("b"), 60);
  EXPECT_EQ(result.end("c"), 80);
}

TEST(Overlap, AChainOfRateChangesRoundsOnce) {
  // x needs 1000 beside ten transfers of 7 with gaps of 10 between their starts (a kernel of 3 on their stream before
  // each, factor 1 on x): 7 of every 10 ps at rate 3/4 (factor 4/3). Ten periods do 10 x (3 + 5.25) = 82.5; the rest
  // runs alone: 1000 - 82.5 + 100 = 1017.5, rounded up once.
  Schedule schedule = one_rank();
  std::vector<Op> ops = {kernel("gemm x")};
  for (int i = 0; i < 10; ++i) {
    ops.push_back(kernel("gap", kCopyInStream));
    ops.back().record = 0;
    ops.push_back(with(all_reduce("r", 0, 1), {0}, 1));
    ops.push_back(with(kernel("after", kCopyInStream), {1}));
  }
  add_program(schedule, 0, ops);
  struct Transfers : FixedNetwork {
    Transfers() {
      rule = [](const CollectiveCall&) { return 7; };
    }
  } network;
  FixedDurations durations;
  durations.rule = by_label({{"gemm x", 1000}, {"gap", 3}, {"after", 0}});
  durations.beside_communication = 4.0 / 3;
  RecordedTimeline timeline;
  SimulationOptions options;
  options.sink = &timeline;
  options.trace.ranks = {0};
  const Totals totals = simulate(schedule, durations, network, options);
  EXPECT_EQ(totals.step.ps(), 1018);
  EXPECT_EQ(totals.ranks[0].contention.ps(), 18);
}

TEST(Overlap, NothingBesideIsUnchangedAndFactorOneIsAsBefore) {
  // Transfers and kernels in turn: huge factors change nothing. Side by side, factors of 1 change nothing either.
  Schedule in_turn = one_rank();
  add_program(in_turn, 0,
              {with(kernel("x"), {}, 0), with(all_reduce("r", 0, 50), {0}, 1), with(kernel("gemm y"), {1})});
  Schedule beside = one_rank();
  add_program(beside, 0, {kernel("x"), all_reduce("r", 0, 50), kernel("gemm y")});
  FixedDurations plain;
  plain.rule = by_label({{"x", 33}, {"gemm y", 19}});
  FixedDurations slow = plain;
  slow.beside_communication = 3;
  slow.beside_kernel = 7;
  slow.transfers = {5, 5, 5, 5};
  EXPECT_EQ(fingerprint(run_beside(in_turn, plain).timeline.ops), fingerprint(run_beside(in_turn, slow).timeline.ops));
  EXPECT_EQ(run_beside(in_turn, slow).totals.step.ps(), 33 + 100 + 19);
  EXPECT_EQ(run_beside(beside, plain).end("x"), 33);
  EXPECT_EQ(run_beside(beside, plain).end("gemm y"), 52);
  EXPECT_EQ(run_beside(beside, plain).end("r"), 100);
  EXPECT_EQ(run_beside(beside, plain).slowed, 0);
}

TEST(Overlap, ATransferWaitsForThePersistentKernelThatRuns) {
  // GEMM a runs 0-100; the transfer (60) is launched at 30, gets onto the device at 100 and ends at 160. GEMM b (80)
  // starts at 100 beside it at factor 1.5: 40 done by 160, ends at 200. A memory-bound kernel holds nothing.
  Schedule schedule = one_rank();
  add_program(schedule, 0,
              {kernel("gemm a"), with(kernel("copy", kCopyInStream), {}, 0), with(all_reduce("r", 0, 30), {0}),
               kernel("gemm b")});
  FixedDurations durations;
  durations.rule = by_label({{"gemm a", 100}, {"gemm b", 80}, {"copy", 30}});
  durations.beside_communication = 1.5;
  durations.holds = true;
  const OverlapOutcome held = run_beside(schedule, durations);
  EXPECT_EQ(held.op("r").arrival.ps(), 100);
  EXPECT_EQ(held.start("r"), 100);
  EXPECT_EQ(held.end("r"), 160);
  EXPECT_EQ(held.end("gemm a"), 100);
  EXPECT_EQ(held.end("gemm b"), 200);
  EXPECT_EQ(held.rank(0).contention.ps(), 20);
  EXPECT_EQ(held.rank(0).communication.ps(), 60);
  schedule.segments[0].ops[0].label = "a";
  durations.rule = by_label({{"a", 100}, {"gemm b", 80}, {"copy", 30}});
  EXPECT_EQ(run_beside(schedule, durations).start("r"), 30);
}

TEST(Overlap, AHeldTransferBeginsWithTheLastWave) {
  // GEMM a (100) has waves of 25: the transfer (60), called at 30, gets multiprocessors at 75 and ends at 135. Beside
  // it a is 1.5 times slower: its last 25 take 37.5, to 113 (rounded); b (80) has done 14.7 by 135 and ends at 200.
  Schedule schedule = one_rank();
  add_program(
      schedule, 0,
      {kernel("gemm a"), with(kernel("copy", kCopyInStream), {}, 0), with(all_reduce("r", 0, 30), {0}), kernel("b")});
  FixedDurations durations;
  durations.rule = by_label({{"gemm a", 100}, {"b", 80}, {"copy", 30}});
  durations.beside_communication = 1.5;
  durations.holds = true;
  durations.last_wave = 0.25;
  const OverlapOutcome held = run_beside(schedule, durations);
  EXPECT_EQ(held.op("r").called.ps(), 30);
  EXPECT_EQ(held.op("r").arrival.ps(), 75);
  EXPECT_EQ(held.end("r"), 135);
  EXPECT_EQ(held.end("gemm a"), 113);
  EXPECT_EQ(held.end("b"), 200);
  // Called in the last wave it begins at once.
  durations.rule = by_label({{"gemm a", 100}, {"b", 80}, {"copy", 80}});
  EXPECT_EQ(run_beside(schedule, durations).start("r"), 80);
}

TEST(Overlap, ASlowedKernelHoldsLonger) {
  // GEMM a (100) on the compute stream, slowed to half by a host copy of 60 from the beginning: 30 done by 60, the rest
  // by 130; its last wave, a quarter, begins at 105.
  Schedule schedule = one_rank();
  add_program(schedule, 0,
              {kernel("gemm a"), with(kernel("copy", kCopyInStream), {}), with(kernel("out", kCopyOutStream), {}, 0),
               with(all_reduce("r", 0, 30), {0})});
  FixedDurations durations;
  durations.rule = by_label({{"gemm a", 100}, {"copy", 60}, {"out", 20}});
  durations.beside_host_copy = 2;
  durations.holds = true;
  durations.last_wave = 0.25;
  const OverlapOutcome held = run_beside(schedule, durations);
  EXPECT_EQ(held.op("r").called.ps(), 20);
  EXPECT_EQ(held.end("gemm a"), 130);
  EXPECT_EQ(held.start("r"), 105);
  // Slowed to its end, 200, its last wave is slowed, too: it begins at 150.
  durations.rule = by_label({{"gemm a", 100}, {"copy", 400}, {"out", 20}});
  EXPECT_EQ(run_beside(schedule, durations).start("r"), 150);
}

TEST(Overlap, TheKernelRightBehindGoesFirst) {
  // The transfer (60) waits for "pre" of the compute stream by an event; GEMM a (100) follows "pre" right there and has
  // the device until 110.
  Schedule schedule = one_rank();
  add_program(schedule, 0, {with(kernel("pre"), {}, 0), kernel("gemm a"), with(all_reduce("r", 0, 30), {0})});
  FixedDurations durations;
  durations.rule = by_label({{"pre", 10}, {"gemm a", 100}});
  durations.holds = true;
  const OverlapOutcome behind = run_beside(schedule, durations);
  EXPECT_EQ(behind.op("r").called.ps(), 10);
  EXPECT_EQ(behind.start("r"), 110);
  durations.at_once = false;  // a short kernel first
  EXPECT_EQ(run_beside(schedule, durations).start("r"), 10);
  durations.at_once = true;
  durations.holds = false;
  EXPECT_EQ(run_beside(schedule, durations).start("r"), 10);
}

TEST(Overlap, ACollectiveThatIsLaunchedWithAKernelGoesFirst) {
  // Both wait for "pre" on the copy stream and start at 10, the transfer beside the GEMM.
  Schedule schedule = one_rank();
  add_program(
      schedule, 0,
      {with(kernel("pre", kCopyInStream), {}, 0), with(kernel("gemm a"), {0}), with(all_reduce("r", 0, 30), {0})});
  FixedDurations durations;
  durations.rule = by_label({{"pre", 10}, {"gemm a", 100}});
  durations.holds = true;
  EXPECT_EQ(run_beside(schedule, durations).start("r"), 10);
}

TEST(Overlap, OneHeldMemberDelaysAllOthers) {
  // Rank 0 is in a GEMM until 50 when the collective (20) is launched at 0 on rank 1 and at 5 on rank 0: 50-70, and
  // rank 1, which has nothing else to do, sees 50 of imbalance and 20 of communication.
  Schedule schedule = make_schedule(2, {"g"});
  add_group(schedule, {0, 1}, 0);
  add_program(schedule, 0,
              {kernel("gemm a"), with(kernel("copy", kCopyInStream), {}, 0), with(all_reduce("r", 0, 10), {0})});
  add_program(schedule, 1, {with(all_reduce("r", 0, 10), {}, 1), with(kernel("b"), {1})});
  FixedDurations durations;
  durations.rule = by_label({{"gemm a", 50}, {"copy", 5}, {"b", 1}});
  durations.holds = true;
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.start("r", 1), 50);
  EXPECT_EQ(result.end("r", 0), 70);
  EXPECT_EQ(result.rank(1).imbalance.ps(), 50);
  EXPECT_EQ(result.rank(1).exposed_communication.ps(), 20);
  EXPECT_EQ(result.totals.step.ps(), 71);
}

TEST(Overlap, AWaitingCollectiveSlowsKernels) {
  // Rank 1 calls at 0 and waits for rank 0, which comes at 60 (after "pre" on its copy stream): the transfer (40) lies
  // in [60, 100]. Rank 1's x (60) runs at 2/3 from the beginning: it ends at 90, before it could see much of the
  // transfer. Its y (20) has done (100 - 90) / 1.5 by 100 and the rest, 13.3, alone: 113. Rank 0 has nothing on it
  // until 60: z (90) has done 60 by then, 26.7 by 100, and ends at 103.
  Schedule schedule = make_schedule(2, {"g"});
  add_group(schedule, {0, 1}, 0);
  add_program(schedule, 0, {kernel("z"), with(kernel("pre", kCopyInStream), {}, 0), with(all_reduce("r", 0, 20), {0})});
  add_program(schedule, 1, {all_reduce("r", 0, 20), kernel("x"), kernel("y")});
  FixedDurations durations;
  durations.rule = by_label({{"pre", 60}, {"x", 60}, {"y", 20}, {"z", 90}});
  durations.beside_communication = 1.5;
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.op("r", 1).arrival.ps(), 0);
  EXPECT_EQ(result.start("r", 1), 60);
  EXPECT_EQ(result.end("r", 1), 100);
  EXPECT_EQ(result.end("x", 1), 90);
  EXPECT_EQ(result.end("y", 1), 113);
  EXPECT_EQ(result.end("z", 0), 103);
  EXPECT_EQ(result.rank(1).contention.ps(), 33);
}

TEST(Overlap, AHeldCollectiveTakesNothingYet) {
  // Rank 1's collective is launched at 10 beside gemm a (50), which keeps it off: a is not slowed. It gets onto the
  // device at 50 and waits there for rank 0, which comes at 200: gemm b (80) takes 120.
  Schedule schedule = make_schedule(2, {"g"});
  add_group(schedule, {0, 1}, 0);
  add_program(schedule, 0, {with(kernel("pre", kCopyInStream), {}, 0), with(all_reduce("r", 0, 20), {0})});
  add_program(schedule, 1,
              {kernel("gemm a"), with(kernel("copy", kCopyInStream), {}, 0), with(all_reduce("r", 0, 20), {0}),
               kernel("gemm b")});
  FixedDurations durations;
  durations.rule = by_label({{"pre", 200}, {"gemm a", 50}, {"gemm b", 80}, {"copy", 10}});
  durations.beside_communication = 1.5;
  durations.holds = true;
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.op("r", 1).arrival.ps(), 50);
  EXPECT_EQ(result.end("gemm a", 1), 50);
  EXPECT_EQ(result.end("gemm b", 1), 170);
  EXPECT_EQ(result.start("r", 1), 200);
}

TEST(Overlap, EveryWaitingCollectiveTakesItsChannels) {
  // Two groups wait for rank 0 until 100 and 200; a kernel is slowed by 1 + channels / 4, one each: x (300) runs at 2/3
  // until 110 (100 and a transfer of 10), then at 4/5 until 210, then alone: 300 - 73.3 - 80 = 146.7, ends at 357.
  struct ByChannels : FixedDurations {
    double kernel_slowdown(OverlapClass kernel, const Beside& beside, std::int64_t) const override {
      return kernel == OverlapClass::kHostCopy ? 1 : 1 + beside.channels / 4.0;
    }
  } durations;
  durations.rule = by_label({{"first", 100}, {"second", 100}, {"x", 300}});
  Schedule schedule = make_schedule(2, {"g", "h"});
  add_group(schedule, {0, 1}, 0);
  add_group(schedule, {0, 1}, 1);
  add_program(schedule, 0,
              {with(kernel("first", kCopyInStream), {}, 0), with(kernel("second", kCopyInStream), {}, 1),
               with(all_reduce("r", 0, 5), {0}), with(all_reduce("s", 1, 5), {1})});
  add_program(schedule, 1, {all_reduce("r", 0, 5), all_reduce("s", 1, 5), kernel("x")});
  const OverlapOutcome result = run_beside(schedule, durations);
  EXPECT_EQ(result.end("r", 1), 110);
  EXPECT_EQ(result.end("s", 1), 210);
  EXPECT_EQ(result.end("x", 1), 357);
}

TEST(OverlapDeathTest, NothingIsSpedUp) {
  Schedule schedule = one_rank();
  add_program(schedule, 0, {all_reduce("r", 0, 50), kernel("x")});
  FixedDurations durations;
  durations.transfers[0] = 0.5;
  EXPECT_DEATH(run_beside(schedule, durations), "a transfer slowed by 0.5");
}

}  // namespace
}  // namespace longhaul
