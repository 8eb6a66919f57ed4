#include "sim/network/collectives.h"

#include <gtest/gtest.h>

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
