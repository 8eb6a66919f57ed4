#include "sim/network/collectives.h"

#include <gtest/gtest.h>

#include "sim/core/json.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

class Dgx : public testing::Test {
 protected:
  Cluster cluster_ = shipped_cluster("dgx-h200-ndr", 1024);
  Collectives collectives_{cluster_};
};

TEST_F(Dgx, NothingToDoTakesNoTime) {
  const std::vector<Bytes> none(8);
  const std::vector<Bytes> one(1, Bytes{7});
  for (const Transfer& transfer :
       {collectives_.all_gather(rank_range(1, 5), Bytes{1000}), collectives_.all_reduce(rank_range(8), Bytes{0}),
        collectives_.reduce_scatter(rank_range(1), Bytes{7}), collectives_.broadcast(rank_range(1), Bytes{7}),
        collectives_.all_to_all(rank_range(1), Bytes{7}), collectives_.send_receive(rank_range(1), Bytes{7}),
        collectives_.all_gather_v(rank_range(8), none), collectives_.reduce_scatter_v(rank_range(1), one),
        collectives_.exchange({})}) {
    EXPECT_TRUE(transfer.loads.empty());
    EXPECT_EQ(transfer.alone, Time::zero());
    EXPECT_EQ(transfer.channels, 0);
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
  collectives_.exchange(std::vector<PeerMessage>{{5, 5, Bytes{1}}});
  std::reverse(messages.begin(), messages.end());
  const Transfer second = collectives_.exchange(messages);
  EXPECT_EQ(first.loads, second.loads);
  EXPECT_EQ(first.alone, second.alone);
  ASSERT_EQ(first.members.size(), 4u);
  EXPECT_EQ(first.members[1].rank, 4);
  EXPECT_EQ(first.members[1].sent_inter_node, 70'000);
}

// nccl.md, section 8: eight Hopper GPUs reduce by LL rings up to 1 MiB and by NVLS from 2 MiB; they gather by LL to
// 4 MiB in all, LL128 to 16 MiB, Simple from 32 MiB. All-to-all leaves LL above 16 KiB a peer.
TEST_F(Dgx, TheAlgorithmFollowsTheSize) {
  const std::vector<int> node = rank_range(8);
  EXPECT_EQ(collectives_.all_reduce(node, Bytes{1 << 20}).algorithm, NcclAlgorithm::kRing);
  EXPECT_EQ(collectives_.all_reduce(node, Bytes{1 << 20}).protocol, NcclProtocol::kLl);
  EXPECT_EQ(collectives_.all_reduce(node, Bytes{2 << 20}).algorithm, NcclAlgorithm::kNvls);
  EXPECT_EQ(collectives_.all_gather(node, Bytes{(4 << 20) / 8}).protocol, NcclProtocol::kLl);
  EXPECT_EQ(collectives_.all_gather(node, Bytes{(16 << 20) / 8}).protocol, NcclProtocol::kLl128);
  EXPECT_EQ(collectives_.all_gather(node, Bytes{(32 << 20) / 8}).protocol, NcclProtocol::kSimple);
  EXPECT_EQ(collectives_.all_to_all(node, Bytes{16 << 10}).protocol, NcclProtocol::kLl);
  EXPECT_EQ(collectives_.all_to_all(node, Bytes{1 << 20}).protocol, NcclProtocol::kSimple);
  EXPECT_GT(collectives_.all_reduce(node, Bytes{1 << 30}).channels, 8);
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

// Unequal parts are broadcasts: a member takes in all parts but its own, and the ring link into it carries just that.
// Unequal reductions are the same backwards: a member sends all parts but its own.
TEST_F(Dgx, UnequalPartsOfAGather) {
  const std::vector<Bytes> parts = {Bytes{1'000'000}, Bytes{0}, Bytes{3'000'000}, Bytes{500'000}};
  const Transfer gather = collectives_.all_gather_v(rank_range(4), parts);
  const Transfer scatter = collectives_.reduce_scatter_v(rank_range(4), parts);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(gather.members[i].received, 4'500'000 - parts[i].value);
    EXPECT_EQ(scatter.members[i].sent_intra_node, 4'500'000 - parts[i].value);
  }
  EXPECT_EQ(gather.alone, scatter.alone);
  EXPECT_EQ(gather.algorithm, NcclAlgorithm::kRing);
  // The ring link that lacks the smallest part has most to carry.
  EXPECT_GE(gather.byte_seconds, 4.5e6 / cluster_.topology().nvlink.effective().value);
}

// Equal parts of a vector form put the same bytes on links as the equal form's ring.
TEST_F(Dgx, EqualPartsOfAVectorFormAreARing) {
  for (const int ranks : {8, 24}) {
    const std::vector<Bytes> parts(static_cast<std::size_t>(ranks), Bytes{240'000});
    const Transfer equal = collectives_.all_gather(rank_range(ranks), Bytes{240'000});
    ASSERT_EQ(equal.algorithm, NcclAlgorithm::kRing);
    EXPECT_EQ(collectives_.all_gather_v(rank_range(ranks), parts).loads, equal.loads);
    EXPECT_EQ(collectives_.reduce_scatter_v(rank_range(ranks), parts).loads, equal.loads);
  }
}

TEST_F(Dgx, AllToAllVIsItsMessages) {
  const std::vector<int> ranks = {3, 9, 12};
  const std::vector<Bytes> sizes = {Bytes{5},    Bytes{100'000}, Bytes{0},      Bytes{70'000}, Bytes{9},
                                    Bytes{3000}, Bytes{1},       Bytes{20'000}, Bytes{4}};
  const std::vector<PeerMessage> messages = {
      {3, 9, Bytes{100'000}}, {9, 3, Bytes{70'000}}, {9, 12, Bytes{3000}}, {12, 3, Bytes{1}}, {12, 9, Bytes{20'000}}};
  const Transfer one = collectives_.all_to_all_v(ranks, sizes);
  const Transfer other = collectives_.exchange(messages);
  EXPECT_EQ(one.loads, other.loads);
  EXPECT_EQ(one.alone, other.alone);
}

TEST_F(Dgx, SendReceiveGoesRound) {
  const auto loads = loads_by_name(cluster_, collectives_.send_receive(rank_range(16), Bytes{1000}));
  EXPECT_EQ(loads.at("n0.g3.nvl>"), 1000);
  EXPECT_EQ(loads.at("n0.nic0>"), 1000);  // rank 7 to rank 8 leaves on the rail of rank 8
  EXPECT_EQ(loads.at("n1.nic0>"), 1000);
  EXPECT_EQ(loads.count("n0.nic3>"), 0u);
}

TEST(CollectivesDeathTest, OurOwnBugs) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 8);
  Collectives collectives(cluster);
  const std::vector<Bytes> two(2, Bytes{1});
  EXPECT_DEATH(collectives.all_gather(std::vector<int>{0, 8}, Bytes{1}), "rank 8 of 8 in a group");
  EXPECT_DEATH(collectives.all_gather(std::vector<int>{0, 1, 0}, Bytes{1}), "rank 0 twice in a group");
  EXPECT_DEATH(collectives.all_gather(std::vector<int>{}, Bytes{1}), "a collective of 0 ranks");
  EXPECT_DEATH(collectives.all_gather_v(rank_range(3), two), "2 parts for 3 ranks");
  EXPECT_DEATH(collectives.all_to_all_v(rank_range(2), two), "2 messages among 2 ranks");
  EXPECT_DEATH(collectives.exchange(std::vector<PeerMessage>{{0, 1, Bytes{-1}}}), "-1 bytes from rank 0 to 1");
  EXPECT_DEATH(collectives.exchange(std::vector<PeerMessage>{{0, 9, Bytes{1}}}), "rank 9 of 8 in an exchange");
}

// Of messages of 100 and 50, 12 channels stay for 3/4 of the time in the mean: 9. Equal ones stay to the end, and so do
// channels that serve several partners.
TEST(Exchange, ChannelsLeaveWithTheirMessages) {
  EXPECT_EQ(moving_channels(12, 2, Bytes{150}, Bytes{100}), 9);
  EXPECT_EQ(moving_channels(12, 2, Bytes{101}, Bytes{100}), 7);  // 6.06
  EXPECT_EQ(moving_channels(12, 3, Bytes{300}, Bytes{100}), 12);
  EXPECT_EQ(moving_channels(12, 13, Bytes{130}, Bytes{100}), 12);
  EXPECT_EQ(moving_channels(0, 0, Bytes{0}, Bytes{0}), 0);
}

}  // namespace
}  // namespace longhaul
