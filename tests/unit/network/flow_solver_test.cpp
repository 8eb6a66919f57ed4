#include "sim/network/flow_solver.h"

#include <gtest/gtest.h>

#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

class FlowSolverTest : public testing::Test {
 protected:
  Cluster cluster_ = plain_cluster(16);
  FlowSolver solver_{cluster_};
  std::vector<std::uint32_t> finished_;
};

TEST_F(FlowSolverTest, NothingInFlight) {
  EXPECT_EQ(solver_.next(), Time::max());
  EXPECT_EQ(solver_.in_flight(), 0);
}

TEST_F(FlowSolverTest, FinishesAtOneTimeComeInTheOrderOfTheirStarts) {
  const Transfer one = path_transfer(cluster_, {0}, 1'000'000);
  const Transfer other = path_transfer(cluster_, {3}, 1'000'000);
  const Transfer third = path_transfer(cluster_, {5}, 1'000'000);
  solver_.start(Time::zero(), third, 7);
  solver_.start(Time::zero(), one, 9);
  solver_.start(Time::zero(), other, 8);
  EXPECT_EQ(solver_.in_flight(), 3);
  while (solver_.next() != Time::max()) solver_.advance(solver_.next(), finished_);
  EXPECT_EQ(finished_, (std::vector<std::uint32_t>{7, 9, 8}));
  EXPECT_EQ(solver_.in_flight(), 0);
}

TEST_F(FlowSolverTest, AnEmptyTransferEndsAtOnce) {
  const Transfer empty;
  solver_.start(Time::from_us(3), empty, 1);
  EXPECT_EQ(solver_.next(), Time::from_us(3));
  solver_.advance(Time::from_us(3), finished_);
  EXPECT_EQ(finished_, std::vector<std::uint32_t>{1});
}

TEST_F(FlowSolverTest, AStartMayMoveAFinish) {
  const Transfer transfer = path_transfer(cluster_, {link_named(cluster_, "n0.nic0>")}, 1'000'000'000);
  solver_.start(Time::zero(), transfer, 0);
  solver_.advance(solver_.next(), finished_);
  EXPECT_EQ(solver_.next(), Time::from_seconds(1));
  solver_.start(Time::from_seconds(0.5), transfer, 1);
  EXPECT_EQ(solver_.next(), Time::from_seconds(0.5));  // its bytes start to move: nothing ends
  solver_.advance(solver_.next(), finished_);
  EXPECT_TRUE(finished_.empty());
  EXPECT_EQ(solver_.next(), Time::from_seconds(1.5));
}

// Transfers on other links are not solved again, nor are runs of one transfer that is alone on its links.
TEST_F(FlowSolverTest, OnlyTheTouchedComponentIsSolved) {
  std::vector<LinkId> many;
  for (LinkId link = 0; link < 20; ++link) many.push_back(link);
  const Transfer large = path_transfer(cluster_, many, 1'000'000'000);
  const Transfer apart = path_transfer(cluster_, {30}, 1'000);
  solver_.start(Time::zero(), large, 0);
  solver_.advance(solver_.next(), finished_);
  const std::int64_t before = solver_.solved_entries();
  for (std::uint32_t run = 0; run < 10; ++run) {
    solver_.start(solver_.next() < Time::max() ? Time::from_us(run) : Time::zero(), apart, run + 1);
    while (finished_.size() <= run) solver_.advance(solver_.next(), finished_);
  }
  EXPECT_LE(solver_.solved_entries() - before, 10);
}

// A flow that ends and an equal one that starts at that instant are one change: the link stays full, and none of the
// other nine is looked at. When the bytes start a moment later, there are two changes, and all nine move twice.
TEST_F(FlowSolverTest, ChangesOfOneInstantAreSolvedTogether) {
  std::vector<std::int64_t> looked_at;
  for (const Time gap : {Time::zero(), Time::from_us(1)}) {
    FlowSolver solver(cluster_);
    const std::vector<Transfer> others(9, path_transfer(cluster_, {0}, 1'000'000'000));
    const Transfer first = path_transfer(cluster_, {0}, 1'000'000);
    const Transfer second = path_transfer(cluster_, {0}, 1'000'000, gap);
    for (std::uint32_t i = 0; i < 9; ++i) solver.start(Time::zero(), others[i], i);
    solver.start(Time::zero(), first, 9);
    finished_.clear();
    solver.advance(Time::zero(), finished_);
    const std::int64_t before = solver.solved_entries();
    const Time end = solver.next();
    solver.advance(end, finished_);
    EXPECT_EQ(finished_, std::vector<std::uint32_t>{9});
    solver.start(end, second, 10);
    while (solver.next() <= end + gap) solver.advance(solver.next(), finished_);
    looked_at.push_back(solver.solved_entries() - before);
  }
  EXPECT_LE(looked_at[0], 5);
  EXPECT_GE(looked_at[1], 18);
}

TEST_F(FlowSolverTest, PeakUtilisationIsTheLargestPartOfTheBandwidth) {
  Transfer half = path_transfer(cluster_, {0}, 1'000'000);
  half.byte_seconds *= 2;
  half.alone = Time::from_seconds(half.byte_seconds);
  run_flows(solver_, {{Time::zero(), &half}});
  EXPECT_DOUBLE_EQ(solver_.peak_utilisation()[0], 0.5);
  run_flows(solver_, {{Time::from_seconds(1), &half}, {Time::from_seconds(1), &half}});
  EXPECT_DOUBLE_EQ(solver_.peak_utilisation()[0], 1);
  EXPECT_DOUBLE_EQ(solver_.peak_utilisation()[1], 0);
}

// 1 GB over a link of 1 GB/s takes 1 s. From 0.25 s to 0.75 s it runs at half its rate: 0.25 + 0.25 done by then, the
// other half takes 0.5 s more.
TEST_F(FlowSolverTest, ASlowedTransferKeepsWhatItHasDone) {
  const Transfer transfer = path_transfer(cluster_, {link_named(cluster_, "n0.nic0>")}, 1'000'000'000);
  const FlowSolver::FlowId flow = solver_.start(Time::zero(), transfer, 0);
  solver_.advance(Time::zero(), finished_);
  solver_.slow(Time::from_seconds(0.25), std::vector<FlowSolver::Slowdown>{{flow, 2}});
  EXPECT_EQ(solver_.next(), Time::from_seconds(1.75));
  solver_.slow(Time::from_seconds(0.75), std::vector<FlowSolver::Slowdown>{{flow, 1}});
  EXPECT_EQ(solver_.next(), Time::from_seconds(1.25));
  solver_.advance(solver_.next(), finished_);
  EXPECT_EQ(finished_, std::vector<std::uint32_t>{0});
  EXPECT_EQ(solver_.delivered()[static_cast<std::size_t>(transfer.loads.front().link)], 1'000'000'000);
}

// Latency 0.5 s, then 1 s of bytes at factor 3: 3.5 s. Given before the bytes move, the factor holds from their start.
TEST_F(FlowSolverTest, LatencyIsNotSlowed) {
  const Transfer transfer =
      path_transfer(cluster_, {link_named(cluster_, "n0.nic0>")}, 1'000'000'000, Time::from_seconds(0.5));
  const FlowSolver::FlowId flow = solver_.start(Time::zero(), transfer, 0);
  solver_.slow(Time::from_seconds(0.125), std::vector<FlowSolver::Slowdown>{{flow, 3}});
  Time now;
  while (finished_.empty()) solver_.advance(now = solver_.next(), finished_);
  EXPECT_EQ(now, Time::from_seconds(3.5));
}

// Two transfers of 1 GB on a link of 1 GB/s: half each. One that may do no more than a quarter of its rate leaves
// three quarters to the other, which ends at 4/3 s; then it still has 2/3 GB and runs on at a quarter: 4 s in all.
TEST_F(FlowSolverTest, WhatASlowedTransferLeavesOthersTake) {
  const LinkId link = link_named(cluster_, "n0.nic0>");
  const Transfer slow = path_transfer(cluster_, {link}, 1'000'000'000);
  const Transfer other = path_transfer(cluster_, {link}, 1'000'000'000);
  const FlowSolver::FlowId flow = solver_.start(Time::zero(), slow, 7);
  solver_.start(Time::zero(), other, 8);
  solver_.slow(Time::zero(), std::vector<FlowSolver::Slowdown>{{flow, 4}});
  std::vector<Time> ends;
  while (solver_.next() != Time::max()) {
    const Time now = solver_.next();
    solver_.advance(now, finished_);
    ends.resize(finished_.size(), now);
  }
  EXPECT_EQ(finished_, (std::vector<std::uint32_t>{8, 7}));
  EXPECT_EQ(ends, (std::vector<Time>{Time::from_seconds(4.0 / 3), Time::from_seconds(4)}));
}

// Two runs of one transfer are one bundle; slowing one of them parts them, taking it back joins them again.
TEST_F(FlowSolverTest, RunsOfOneTransferAreSlowedOneByOne) {
  const LinkId link = link_named(cluster_, "n0.nic0>");
  const Transfer transfer = path_transfer(cluster_, {link}, 1'000'000'000);
  const FlowSolver::FlowId first = solver_.start(Time::zero(), transfer, 1);
  solver_.start(Time::zero(), transfer, 2);
  solver_.advance(Time::zero(), finished_);
  // Until 1 s: 1/4 and 3/4 of the link. Then half each: the second ends after 0.25 / 0.5 = 0.5 s, when the first has
  // 0.5 GB left, and all of the link: 2 s.
  solver_.slow(Time::zero(), std::vector<FlowSolver::Slowdown>{{first, 4}});
  solver_.slow(Time::from_seconds(1), std::vector<FlowSolver::Slowdown>{{first, 1}});
  std::vector<Time> ends;
  while (solver_.next() != Time::max()) {
    const Time now = solver_.next();
    solver_.advance(now, finished_);
    ends.resize(finished_.size(), now);
  }
  EXPECT_EQ(finished_, (std::vector<std::uint32_t>{2, 1}));
  EXPECT_EQ(ends, (std::vector<Time>{Time::from_seconds(1.5), Time::from_seconds(2)}));
}

using FlowSolverDeathTest = FlowSolverTest;

TEST_F(FlowSolverDeathTest, TimeNeverGoesBack) {
  const Transfer transfer = path_transfer(cluster_, {0}, 1'000'000);
  solver_.start(Time::from_us(5), transfer, 0);
  EXPECT_DEATH(solver_.start(Time::from_us(4), transfer, 1), "a change at 4000000 ps between 5000000");
  EXPECT_DEATH(solver_.start(Time::from_us(6), transfer, 1), "a change at 6000000 ps between");
  EXPECT_DEATH(solver_.advance(Time::from_us(6), finished_), "an advance from 5000000 to 6000000 ps");
}

TEST_F(FlowSolverDeathTest, ASlowdownIsAtLeastOneAndOfAFlowInFlight) {
  const Transfer transfer = path_transfer(cluster_, {0}, 1'000'000);
  const FlowSolver::FlowId flow = solver_.start(Time::zero(), transfer, 0);
  const std::vector<FlowSolver::Slowdown> faster = {{flow, 0.5}};
  EXPECT_DEATH(solver_.slow(Time::zero(), faster), "flow 0 slowed by 0.5");
  while (solver_.next() != Time::max()) solver_.advance(solver_.next(), finished_);
  const std::vector<FlowSolver::Slowdown> ended = {{flow, 2}};
  EXPECT_DEATH(solver_.slow(Time::from_seconds(1), ended), "flow 0 slowed by 2");
}

TEST_F(FlowSolverDeathTest, ATransferMayNotBeFasterThanItsLinks) {
  Transfer transfer = path_transfer(cluster_, {0}, 1'000'000);
  transfer.byte_seconds /= 2;
  solver_.start(Time::zero(), transfer, 0);
  EXPECT_DEATH(solver_.advance(Time::zero(), finished_), "a transfer faster than its links");
}

TEST_F(FlowSolverDeathTest, WeightsArePositiveAndEpsIsBelowOne) {
  Transfer transfer = path_transfer(cluster_, {0}, 1'000'000);
  transfer.weight = 0;
  solver_.start(Time::zero(), transfer, 0);
  EXPECT_DEATH(solver_.advance(Time::zero(), finished_), "a transfer of weight 0");
  EXPECT_DEATH(FlowSolver(cluster_, 1.0), "an eps of 1");
  EXPECT_DEATH(FlowSolver(cluster_, -1e-3), "an eps of -0.001");
}

}  // namespace
}  // namespace longhaul
