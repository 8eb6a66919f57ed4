#include "sim/network/collectives.h"

#include <gtest/gtest.h>

#include "sim/core/json.h"
#include "sim/network/protocol.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

class Dgx : public testing::Test {
 protected:
  Cluster cluster_ = shipped_cluster("dgx-h200-ndr", 1024);
  Collectives collectives_{cluster_};
};

TEST_F(Dgx, NothingToDoTakesNoTime) {
  for (const Transfer& transfer :
       {collectives_.all_gather(rank_range(1, 5), Bytes{1000}), collectives_.all_reduce(rank_range(8), Bytes{0}),
        collectives_.reduce_scatter(rank_range(1), Bytes{7}), collectives_.broadcast(rank_range(1), Bytes{7}),
        collectives_.exchange({})}) {
    EXPECT_TRUE(transfer.loads.empty());
    EXPECT_EQ(transfer.alone, Time::zero());
    EXPECT_EQ(transfer.algorithm, Algorithm::kNone);
  }
}

TEST_F(Dgx, MessagesToOneselfAndEmptyOnesAreNotSent) {
  const std::vector<PeerMessage> messages = {{3, 3, Bytes{1000}}, {1, 2, Bytes{0}}};
  const Transfer transfer = collectives_.exchange(messages);
  EXPECT_TRUE(transfer.loads.empty());
  EXPECT_EQ(transfer.alone, Time::zero());
}

TEST_F(Dgx, MessagesBetweenTwoRanksAddUp) {
  const std::vector<PeerMessage> messages = {{0, 1, Bytes{1000}}, {0, 1, Bytes{234}}};
  const auto loads = loads_by_name(cluster_, collectives_.exchange(messages));
  EXPECT_EQ(loads, (std::map<std::string, std::int64_t>{{"n0.g0.nvl>", 1234}, {"n0.g1.nvl<", 1234}}));
}

// The order of messages does not matter, nor what was computed before.
TEST_F(Dgx, ResultsDoNotDependOnEarlierCalls) {
  std::vector<PeerMessage> messages = {{0, 9, Bytes{100'000}}, {9, 0, Bytes{50'000}}, {4, 17, Bytes{70'000}}};
  const Transfer first = collectives_.exchange(messages);
  collectives_.all_reduce(rank_range(1024), Bytes{1'000'000});
  std::reverse(messages.begin(), messages.end());
  const Transfer second = collectives_.exchange(messages);
  EXPECT_EQ(first.loads, second.loads);
  EXPECT_EQ(first.alone, second.alone);
  ASSERT_EQ(first.members.size(), 4u);
  EXPECT_EQ(first.members[1].rank, 4);
  EXPECT_EQ(first.members[1].sent_inter_node, 70'000);
}

// Eight H100 or H200 gather small parts by LL, middle ones by LL128, large ones by Simple.
TEST_F(Dgx, TheProtocolFollowsTheSize) {
  EXPECT_EQ(collectives_.all_gather(rank_range(8), Bytes{4 << 10}).protocol, Protocol::kLl);
  EXPECT_EQ(collectives_.all_gather(rank_range(8), Bytes{1 << 20}).protocol, Protocol::kLl128);
  EXPECT_EQ(collectives_.all_gather(rank_range(8), Bytes{1 << 30}).protocol, Protocol::kSimple);
}

// Start-up 4.4 us, 14 LL steps of 0.83 us, 4 bytes a rank: about 16 us, as one-node tables show for all-reduce.
TEST_F(Dgx, ASmallCallTakesMicroseconds) {
  const Transfer transfer = collectives_.all_reduce(rank_range(8), Bytes{32});
  EXPECT_EQ(transfer.protocol, Protocol::kLl);
  EXPECT_GT(transfer.alone, Time::from_us(4.4 + 14 * 0.83));
  EXPECT_LT(transfer.alone, Time::from_us(17));
}

// Over 128 nodes a ring has 2046 steps; the tree has 2 x 7 chain steps and 2 x 7 network hops of 8 us.
TEST_F(Dgx, ASmallAllReduceOverManyNodesIsATree) {
  const Transfer transfer = collectives_.all_reduce(rank_range(1024), Bytes{4});
  EXPECT_EQ(transfer.algorithm, Algorithm::kTree);
  EXPECT_NEAR(transfer.latency.us(), 4.4 + 14 * 0.83 + 14 * 8, 1e-6);
  // Every edge of the tree carries the buffer up and down: 1023 edges, 127 of them between nodes.
  EXPECT_EQ(transfer.inter_node_bytes, 2 * 127 * 4);
  EXPECT_EQ(transfer.intra_node_bytes, 2 * 896 * 4);
  EXPECT_EQ(collectives_.all_reduce(rank_range(16), Bytes{1 << 30}).algorithm, Algorithm::kRing);
}

// More bytes never take less time, across protocols and algorithms.
TEST_F(Dgx, TimeGrowsWithSize) {
  for (const int ranks : {2, 4, 8, 16, 1024}) {
    Time gather;
    Time reduce;
    for (std::int64_t bytes = 64; bytes <= std::int64_t{1} << 32; bytes *= 2) {
      const Time next_gather = collectives_.all_gather(rank_range(ranks), Bytes{bytes / 64}).alone;
      const Time next_reduce = collectives_.all_reduce(rank_range(ranks), Bytes{bytes}).alone;
      EXPECT_GE(next_gather, gather) << ranks << " ranks, " << bytes;
      EXPECT_GE(next_reduce, reduce) << ranks << " ranks, " << bytes;
      gather = next_gather;
      reduce = next_reduce;
    }
  }
}

// From a root on node 0 of two: 15 x the buffer in all, one of them across; nothing flows into the root.
TEST_F(Dgx, Broadcast) {
  const Transfer transfer = collectives_.broadcast(rank_range(16), Bytes{8'000'000});
  EXPECT_EQ(transfer.inter_node_bytes, 8'000'000);
  EXPECT_EQ(transfer.intra_node_bytes, 14 * 8'000'000);
  const auto loads = loads_by_name(cluster_, transfer);
  EXPECT_EQ(loads.count("n0.g0.nvl<"), 0u);
  EXPECT_EQ(loads.count("n0.nic0<"), 0u);
  EXPECT_EQ(loads.at("n0.nic0>"), 1'000'000);
  EXPECT_EQ(loads.at("n1.g3.nvl<"), 7'000'000);
}

// Three members on one node, two on the next, on other rails: shares of a third and a half, cut where they meet.
TEST_F(Dgx, UnequalNodes) {
  const std::vector<int> ranks = {0, 1, 2, 8, 9};
  const Transfer transfer = collectives_.all_gather(ranks, Bytes{600});
  const auto loads = loads_by_name(cluster_, transfer);  // T = 2400: 800 a member on node 0, 1200 on node 1
  EXPECT_EQ(loads.at("n1.nic0<"), 1200);
  EXPECT_EQ(loads.at("n1.nic1<"), 1200);
  EXPECT_EQ(loads.at("n0.nic0<") + loads.at("n0.nic1<") + loads.at("n0.nic2<"), 2400);
  EXPECT_EQ(transfer.inter_node_bytes, 2 * 2400);
}

// The latency keys of a topology file, as a user changes them.
Cluster cluster_with(const std::string& patch, int gpus) {
  const auto json = parse_json(R"({"base": "dgx-h200-ndr", )" + patch + "}", "t.json");
  return *make_cluster(*parse_topology(*json, "t.json", "", LONGHAUL_SOURCE_ROOT), gpus);
}

// By how much longer, in us, an operation takes on `changed` than on the shipped file.
template <class Operation>
double longer_us(const Cluster& changed, Operation operation) {
  const Cluster shipped = shipped_cluster("dgx-h200-ndr", changed.gpus());
  Collectives before(shipped);
  Collectives after(changed);
  const Transfer slow = operation(after);
  const Transfer fast = operation(before);
  EXPECT_EQ(slow.protocol, fast.protocol);
  EXPECT_EQ(slow.algorithm, fast.algorithm);
  EXPECT_EQ(slow.byte_seconds, fast.byte_seconds);
  return slow.latency.us() - fast.latency.us();
}

// 1000 us more on the wire: a gather over D nodes crosses D-1 boundaries, an all-reduce twice as many, a message once.
TEST(Collectives, NetworkLatencyCountsOnEveryHopBetweenNodes) {
  const Cluster slow = cluster_with(R"("network": {"latency_us": 1002.7})", 32);
  const auto gather = [](Collectives& c) { return c.all_gather(rank_range(32), Bytes{100'000'000}); };
  const auto reduce = [](Collectives& c) { return c.all_reduce(rank_range(4, 3, 8), Bytes{1'000'000'000}); };
  const auto small = [](Collectives& c) { return c.all_gather(rank_range(4, 3, 8), Bytes{64}); };
  const auto inside = [](Collectives& c) { return c.all_gather(rank_range(8), Bytes{100'000'000}); };
  EXPECT_NEAR(longer_us(slow, gather), 3 * 1000, 1e-5);
  EXPECT_NEAR(longer_us(slow, reduce), 6 * 1000, 1e-5);
  EXPECT_NEAR(longer_us(slow, small), 3 * 1000, 1e-5);
  EXPECT_EQ(longer_us(slow, inside), 0);
  for (const std::int64_t bytes : {1'000, 1'000'000}) {
    const auto edge = [&](Collectives& c) {
      return c.exchange(std::vector<PeerMessage>{{0, 1, Bytes{bytes}}, {3, 11, Bytes{bytes}}, {1, 14, Bytes{bytes}}});
    };
    const auto near = [&](Collectives& c) { return c.exchange(std::vector<PeerMessage>{{0, 1, Bytes{bytes}}}); };
    EXPECT_NEAR(longer_us(slow, edge), 1000, 1e-5);
    EXPECT_EQ(longer_us(slow, near), 0);
  }
}

// The tree over 16 nodes: four levels up and four down. A ring, 30 hops, is longer still.
TEST(Collectives, NetworkLatencyCountsOnEveryLevelOfATree) {
  const Cluster slow = cluster_with(R"("network": {"latency_us": 1002.7})", 128);
  const auto tree = [](Collectives& c) { return c.all_reduce(rank_range(128), Bytes{4}); };
  EXPECT_NEAR(longer_us(slow, tree), 8 * 1000, 1e-5);
}

// 10 us more over NVLink: on every ring step inside a node and once on a message, also on the way to another rail.
TEST(Collectives, NvLinkLatencyCountsOnEveryStepInsideANode) {
  const Cluster slow = cluster_with(R"("nvlink": {"latency_us": 10.6})", 16);
  for (const std::int64_t bytes : {64, 200'000, 1'000'000'000}) {  // LL, LL128 or Simple, Simple
    const auto edge = [&](int from, int to) {
      return longer_us(slow, [&](Collectives& c) {
        return c.exchange(std::vector<PeerMessage>{{from, to, Bytes{bytes}}});
      });
    };
    EXPECT_NEAR(edge(0, 1), 10, 1e-5) << bytes;
    EXPECT_NEAR(edge(3, 11), 0, 1e-5) << bytes;
    EXPECT_NEAR(edge(3, 12), 10, 1e-5) << bytes;
  }
  const auto large = [](Collectives& c) { return c.all_gather(rank_range(8), Bytes{1'000'000'000}); };
  const auto small = [](Collectives& c) { return c.all_gather(rank_range(8), Bytes{64}); };
  const auto nodes = [](Collectives& c) { return c.all_gather(rank_range(16), Bytes{100'000'000}); };
  EXPECT_NEAR(longer_us(slow, large), 7 * 10, 1e-5);
  EXPECT_NEAR(longer_us(slow, small), 7 * 10, 1e-5);
  EXPECT_NEAR(longer_us(slow, nodes), 14 * 10, 1e-5);
}

// A message passes PCIe at both ends: 2 x 10 us.
TEST(Collectives, PcieLatencyCountsAtBothEnds) {
  Topology topology = *read_topology("a100-40gb-2x4", LONGHAUL_SOURCE_ROOT);
  const PeerMessage message{1, 5, Bytes{1'000'000}};
  const auto latency_us = [&] {
    const Cluster cluster = *make_cluster(topology, 8);
    return Collectives(cluster).exchange({&message, 1}).latency.us();
  };
  const double before = latency_us();
  topology.pcie->latency = Time::from_us(10);
  EXPECT_NEAR(latency_us(), before + 20, 1e-6);
}

// Shipped files: wire and what NCCL adds make the hops that were fitted to measured tables, 8 us by LL and 6 by Simple,
// and NVLink is that of the fits.
TEST(Collectives, ShippedTopologiesKeepTheFittedHops) {
  const std::vector<std::string> names = shipped_topologies(LONGHAUL_SOURCE_ROOT);
  ASSERT_GE(names.size(), 5u);
  for (const std::string& name : names) {
    const Topology topology = *read_topology(name, LONGHAUL_SOURCE_ROOT);
    if (topology.technology != NetworkTechnology::kInfiniBand) continue;
    EXPECT_DOUBLE_EQ(network_hop_seconds(topology, Protocol::kLl), 8e-6) << name;
    EXPECT_DOUBLE_EQ(network_hop_seconds(topology, Protocol::kSimple), 6e-6) << name;
    EXPECT_EQ(nvlink_extra_us(topology), 0) << name;
  }
}

TEST(Collectives, SeveralPeersUseANicLessWellThanOne) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 32);
  Collectives collectives(cluster);
  const std::vector<PeerMessage> one = {{0, 8, Bytes{30'000'000}}};
  const std::vector<PeerMessage> two = {{0, 8, Bytes{15'000'000}}, {0, 16, Bytes{15'000'000}}};
  EXPECT_DOUBLE_EQ(collectives.exchange(one).byte_seconds, 30e6 / 48e9);
  EXPECT_DOUBLE_EQ(collectives.exchange(two).byte_seconds, 30e6 / (0.75 * 50e9));
}

// Up to 16 KiB a message by LL: 4.4 + 2.5 us and the message at 6 GB/s.
TEST(Collectives, ASmallExchange) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 8);
  Collectives collectives(cluster);
  const std::vector<PeerMessage> small = {{0, 1, Bytes{12'000}}, {1, 0, Bytes{12'000}}};
  const Transfer transfer = collectives.exchange(small);
  EXPECT_EQ(transfer.protocol, Protocol::kLl);
  EXPECT_NEAR(transfer.alone.us(), 4.4 + 2.5 + 2, 1e-6);
}

TEST(CollectivesDeathTest, OurOwnBugs) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 8);
  Collectives collectives(cluster);
  EXPECT_DEATH(collectives.all_gather(std::vector<int>{0, 8}, Bytes{1}), "rank 8 of 8 in a group");
  EXPECT_DEATH(collectives.all_gather(std::vector<int>{0, 1, 0}, Bytes{1}), "rank 0 twice in a group");
  EXPECT_DEATH(collectives.all_gather(std::vector<int>{}, Bytes{1}), "a collective of 0 ranks");
  EXPECT_DEATH(collectives.exchange(std::vector<PeerMessage>{{0, 1, Bytes{-1}}}), "-1 bytes from rank 0 to 1");
  EXPECT_DEATH(collectives.exchange(std::vector<PeerMessage>{{0, 9, Bytes{1}}}), "rank 9 of 8 in an exchange");
}

}  // namespace
}  // namespace longhaul
