// Closed forms of max-min fair sharing.
#include <gtest/gtest.h>

#include "sim/network/flow_solver.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

constexpr std::int64_t kGB = 1'000'000'000;

class FlowOracle : public testing::Test {
 protected:
  LinkId nic(int index) const { return link_named(cluster_, "n0.nic" + std::to_string(index) + ">"); }
  Cluster cluster_ = plain_cluster(16);
  FlowSolver solver_{cluster_};
};

// latency + S / B: 3 us + 0.25 GB at 1 GB/s.
TEST_F(FlowOracle, OneFlow) {
  const Transfer flow = path_transfer(cluster_, {nic(0)}, kGB / 4, Time::from_us(3));
  EXPECT_EQ(run_flows(solver_, {{Time::from_us(7), &flow}})[0], Time::from_us(7 + 3 + 250'000));
  EXPECT_EQ(solver_.delivered()[static_cast<std::size_t>(nic(0))], kGB / 4);
  EXPECT_DOUBLE_EQ(solver_.peak_utilisation()[static_cast<std::size_t>(nic(0))], 1);
}

// 0.5 GB and 1 GB on 1 GB/s: half each until the short one ends at 1.0 s; then 0.5 GB are left at the full rate: 1.5 s.
TEST_F(FlowOracle, TwoFlowsOnALink) {
  const Transfer small = path_transfer(cluster_, {nic(0)}, kGB / 2);
  const Transfer large = path_transfer(cluster_, {nic(0)}, kGB);
  const std::vector<Time> finish = run_flows(solver_, {{Time::zero(), &small}, {Time::zero(), &large}});
  EXPECT_EQ(finish[0], Time::from_seconds(1.0));
  EXPECT_EQ(finish[1], Time::from_seconds(1.5));
}

// A 1 GB flow alone for 0.5 s, then shared with a 0.25 GB flow that needs 0.5 s at half rate (ends at 1.0 s, when the
// first has 0.25 GB left): ends at 1.25 s.
TEST_F(FlowOracle, ALateFlow) {
  const Transfer first = path_transfer(cluster_, {nic(0)}, kGB);
  const Transfer second = path_transfer(cluster_, {nic(0)}, kGB / 4);
  const std::vector<Time> finish = run_flows(solver_, {{Time::zero(), &first}, {Time::from_seconds(0.5), &second}});
  EXPECT_EQ(finish[0], Time::from_seconds(1.25));
  EXPECT_EQ(finish[1], Time::from_seconds(1.0));
}

// The byte phase starts after the latency: until then the link is the other's alone.
TEST_F(FlowOracle, LatencyDoesNotUseTheLink) {
  const Transfer first = path_transfer(cluster_, {nic(0)}, kGB);
  const Transfer second = path_transfer(cluster_, {nic(0)}, kGB / 4, Time::from_seconds(0.5));
  const std::vector<Time> finish = run_flows(solver_, {{Time::zero(), &first}, {Time::zero(), &second}});
  EXPECT_EQ(finish[0], Time::from_seconds(1.25));
  EXPECT_EQ(finish[1], Time::from_seconds(1.0));
}

// Parking lot: a flow over three links, one local flow on each. Every link is shared by two: all get half, and all
// 1 GB flows end at 2 s.
TEST_F(FlowOracle, ParkingLot) {
  const Transfer through = path_transfer(cluster_, {nic(0), nic(1), nic(2)}, kGB);
  std::vector<Transfer> locals;
  for (int link = 0; link < 3; ++link) locals.push_back(path_transfer(cluster_, {nic(link)}, kGB));
  std::vector<Start> starts = {{Time::zero(), &through}};
  for (const Transfer& local : locals) starts.push_back({Time::zero(), &local});
  for (const Time finish : run_flows(solver_, starts)) EXPECT_EQ(finish, Time::from_seconds(2));
}

// Max-min beyond the first level. Link 0 carries A, B and C, link 1 carries C and D. A, B, C get 1/3 each; D takes the
// 2/3 that C leaves on link 1: 1 GB in 1.5 s, while A, B and C need 3 s. After D has gone C still has 1/3 on link 0.
TEST_F(FlowOracle, TheSecondLevelTakesWhatIsLeft) {
  const Transfer on_zero = path_transfer(cluster_, {nic(0)}, kGB);
  const Transfer also_zero = path_transfer(cluster_, {nic(0)}, kGB);
  const Transfer both = path_transfer(cluster_, {nic(0), nic(1)}, kGB);
  const Transfer on_one = path_transfer(cluster_, {nic(1)}, kGB);
  const std::vector<Time> finish = run_flows(
      solver_, {{Time::zero(), &on_zero}, {Time::zero(), &also_zero}, {Time::zero(), &both}, {Time::zero(), &on_one}});
  EXPECT_EQ(finish[0], Time::from_seconds(3));
  EXPECT_EQ(finish[1], Time::from_seconds(3));
  EXPECT_EQ(finish[2], Time::from_seconds(3));
  EXPECT_EQ(finish[3], Time::from_seconds(1.5));
}

// A transfer that puts half as many bytes on the shared link as on its own. Its rate r counts on its own link, so the
// shared link is full when r/2 + r = 1: both rates are 2/3. The plain 0.5 GB end at 0.75 s, when the other has 0.5 GB
// left and the full rate: 1.25 s.
TEST_F(FlowOracle, UnequalLoadsOfOneTransfer) {
  Transfer uneven = path_transfer(cluster_, {nic(0)}, kGB);
  uneven.loads.push_back({nic(1), kGB / 2});
  const Transfer plain = path_transfer(cluster_, {nic(1)}, kGB / 2);
  const std::vector<Time> finish = run_flows(solver_, {{Time::zero(), &uneven}, {Time::zero(), &plain}});
  EXPECT_EQ(finish[0], Time::from_seconds(1.25));
  EXPECT_EQ(finish[1], Time::from_seconds(0.75));
  EXPECT_EQ(solver_.delivered()[static_cast<std::size_t>(nic(1))], kGB);
}

// A transfer that cannot use more than 1/4 of its link leaves 3/4 to the other.
TEST_F(FlowOracle, ALimitedTransferLeavesTheRest) {
  Transfer limited = path_transfer(cluster_, {nic(0)}, kGB / 4);
  limited.byte_seconds = 1;
  limited.alone = Time::from_seconds(1);
  const Transfer greedy = path_transfer(cluster_, {nic(0)}, kGB * 3 / 4);
  const std::vector<Time> finish = run_flows(solver_, {{Time::zero(), &limited}, {Time::zero(), &greedy}});
  EXPECT_EQ(finish[0], Time::from_seconds(1));
  EXPECT_EQ(finish[1], Time::from_seconds(1));
}

// k runs of one transfer share its links: each gets 1/k, as k equal transfers would.
TEST_F(FlowOracle, RunsOfOneTransfer) {
  const Transfer shared = path_transfer(cluster_, {nic(0), nic(1)}, kGB / 4);
  for (const Time finish : run_flows(solver_, std::vector<Start>(4, {Time::zero(), &shared}))) {
    EXPECT_EQ(finish, Time::from_seconds(1));
  }
  EXPECT_EQ(solver_.delivered()[static_cast<std::size_t>(nic(1))], kGB);
}

}  // namespace
}  // namespace longhaul
