// Closed forms of max-min fair sharing.
#include <gtest/gtest.h>

#include <map>

#include "sim/network/flow_solver.h"
#include "tests/bench/ring_chunks.h"
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

// A long parking lot: one flow over links 0..4, k local flows on link k. The long flow gets 1/(1+4) on link 4, and the
// k flows of link k share the other 4/5: 4/(5k). With 12/k GB each, and 3 GB for the long flow, all end at 15 s.
TEST_F(FlowOracle, AParkingLotWithCrowdedLinks) {
  const Transfer through = path_transfer(cluster_, {nic(0), nic(1), nic(2), nic(3), nic(4)}, 3 * kGB);
  std::vector<Transfer> locals;
  for (int link = 1; link <= 4; ++link) {
    for (int copy = 0; copy < link; ++copy) locals.push_back(path_transfer(cluster_, {nic(link)}, 12 * kGB / link));
  }
  std::vector<Start> starts = {{Time::zero(), &through}};
  for (const Transfer& local : locals) starts.push_back({Time::zero(), &local});
  for (const Time finish : run_flows(solver_, starts)) EXPECT_EQ(finish, Time::from_seconds(15));
  EXPECT_EQ(solver_.delivered()[static_cast<std::size_t>(nic(3))], 15 * kGB);
}

// Weights 1 and 3 on 1 GB/s: 1/4 and 3/4. 0.25 and 0.75 GB end together at 1 s.
TEST_F(FlowOracle, Weights) {
  const Transfer light = path_transfer(cluster_, {nic(0)}, kGB / 4);
  Transfer heavy = path_transfer(cluster_, {nic(0), nic(1)}, kGB * 3 / 4);
  heavy.weight = 3;
  for (const Time finish : run_flows(solver_, {{Time::zero(), &light}, {Time::zero(), &heavy}})) {
    EXPECT_EQ(finish, Time::from_seconds(1));
  }
}

// The same, but the heavy one cannot pass 1/2: both get 1/2. Its 1 GB end at 2 s, the light 0.5 GB at 1 s.
TEST_F(FlowOracle, AWeightDoesNotLiftALimit) {
  const Transfer light = path_transfer(cluster_, {nic(0)}, kGB / 2);
  Transfer heavy = path_transfer(cluster_, {nic(0)}, kGB);
  heavy.weight = 3;
  heavy.byte_seconds = 2;
  heavy.alone = Time::from_seconds(2);
  const std::vector<Time> finish = run_flows(solver_, {{Time::zero(), &light}, {Time::zero(), &heavy}});
  EXPECT_EQ(finish[0], Time::from_seconds(1));
  EXPECT_EQ(finish[1], Time::from_seconds(2));
}

// One transfer of weight 3 and 3 GB shares as three of 1 GB: beside 1 GB all end at 4 s. Weights in the parking lot: on
// the second link it has 3/4 of the first left to take, the local flow 1/4: 1 GB at 4 s too.
TEST_F(FlowOracle, AWeightCountsAsThatManyTransfers) {
  Transfer three = path_transfer(cluster_, {nic(0), nic(1)}, 3 * kGB);
  three.weight = 3;
  const Transfer one = path_transfer(cluster_, {nic(0)}, kGB);
  const Transfer local = path_transfer(cluster_, {nic(1)}, kGB);
  for (const Time finish : run_flows(solver_, {{Time::zero(), &three}, {Time::zero(), &one}, {Time::zero(), &local}})) {
    EXPECT_EQ(finish, Time::from_seconds(4));
  }
}

// eps: eight 1 GB flows on link 0 only, beside three of 0.1 GB that cross links 0 and 1, while twenty short flows come
// and go on link 1 and move the rates of the three. Link 0 always has a flow that could take all of it, so exactly it
// is full until its 8.3 GB are through at 8.3 s. With eps it never carries more, and never leaves more than eps unused.
TEST_F(FlowOracle, EpsDelaysByAtMostEps) {
  std::vector<Transfer> flows;
  std::vector<Time> times;
  for (int i = 0; i < 31; ++i) {
    const bool shorter = i >= 11;
    const std::vector<LinkId> path = i < 8     ? std::vector<LinkId>{nic(0)}
                                     : shorter ? std::vector<LinkId>{nic(1)}
                                               : std::vector<LinkId>{nic(0), nic(1)};
    flows.push_back(path_transfer(cluster_, path, i < 8 ? kGB : shorter ? kGB / 50 : kGB / 10));
    times.push_back(shorter ? Time::from_seconds(0.037 * (i - 10)) : Time::zero());
  }
  std::vector<Start> starts;
  for (std::size_t i = 0; i < flows.size(); ++i) starts.push_back({times[i], &flows[i]});
  for (const double eps : {0.0, 1e-4, 1e-2, 0.1}) {
    FlowSolver solver(cluster_, eps);
    const std::vector<Time> finish = run_flows(solver, starts);
    const Time last = *std::max_element(finish.begin(), finish.begin() + 8);
    EXPECT_GE(last.seconds(), 8.3 - 1e-9) << eps;
    EXPECT_LE(last.seconds(), 8.3 / (1 - eps) + 1e-9) << eps;
  }
}

// Chunk by chunk and closed form (tests/bench/ring_chunks.h): equal links.
TEST_F(FlowOracle, AChunkedRingEndsAtItsClosedForm) {
  Topology topology = *read_topology("dgx-h200-ndr", LONGHAUL_SOURCE_ROOT);
  topology.nic.rated = topology.nvlink.rated;
  topology.nic.efficiency = topology.nvlink.efficiency;
  const Cluster equal = *make_cluster(topology, 16);
  for (const int ranks : {2, 3, 8, 13}) {
    for (int hops = 1; hops <= 4; ++hops) {
      const ChunkRing ring = chunk_ring(equal, ranks, hops, 62'500, Time::from_us(0.6));
      FlowSolver solver(equal);
      const Time bytes = Time::from_seconds(Bytes{62'500} / equal.links()[0].bandwidth);
      const std::int64_t send = (Time::from_us(0.6) + bytes).ps();
      EXPECT_EQ(run_chunk_ring(solver, ring), Time::from_ps(std::int64_t{2 * (ranks - 1)} * hops * send));
      for (int link = 0; link < ranks * hops; ++link) {
        EXPECT_EQ(solver.delivered()[static_cast<std::size_t>(link)], std::int64_t{2 * (ranks - 1)} * 62'500);
      }
    }
  }
}

// Links of two rates in any order: the recurrence, to the picosecond.
TEST_F(FlowOracle, AChunkedRingOverUnequalLinksEndsWhenItsRecurrenceSays) {
  for (const int ranks : {2, 5, 16}) {
    for (int hops = 1; hops <= 4; ++hops) {
      const ChunkRing ring = chunk_ring(cluster_, ranks, hops, 99'991, Time::from_us(0.7));
      FlowSolver solver(cluster_);
      EXPECT_EQ(run_chunk_ring(solver, ring), ring_ends(ring)) << ranks << " ranks, " << hops << " hops";
    }
  }
}

// Every rank to every other, as plain flows over their routes and as one transfer with the sums. The links that bind
// carry equal flows only and are full until the end, so the last flow ends when the one transfer does; each of the
// flows' ends is rounded to a picosecond.
TEST_F(FlowOracle, AnAllToAllEqualsItsFlows) {
  for (const int ranks : {2, 8, 16, 32, 64}) {
    const Cluster cluster = shipped_cluster("dgx-h200-ndr", ranks);
    const std::int64_t bytes = 1'234'567;
    std::vector<Transfer> flows;
    std::map<LinkId, std::int64_t> loads;
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        if (from == to) continue;
        const Route route = cluster.route(from, to);
        flows.push_back(path_transfer(cluster, {route.begin(), route.end()}, bytes));
        for (const LinkId link : route) loads[link] += bytes;
      }
    }
    Transfer whole;
    for (const auto& [link, load] : loads) {
      whole.loads.push_back({link, load});
      whole.byte_seconds =
          std::max(whole.byte_seconds, Bytes{load} / cluster.links()[static_cast<std::size_t>(link)].bandwidth);
    }
    whole.alone = Time::from_seconds(whole.byte_seconds);
    std::vector<Start> starts;
    for (const Transfer& flow : flows) starts.push_back({Time::zero(), &flow});
    FlowSolver one(cluster);
    FlowSolver many(cluster);
    const std::vector<Time> finish = run_flows(many, starts);
    const Time last = *std::max_element(finish.begin(), finish.end());
    EXPECT_LE(std::abs((last - run_flows(one, {{Time::zero(), &whole}})[0]).ps()), 1) << ranks << " ranks";
    EXPECT_EQ(one.delivered(), many.delivered());
  }
}

}  // namespace
}  // namespace longhaul
