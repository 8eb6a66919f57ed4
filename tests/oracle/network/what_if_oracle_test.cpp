// What-ifs against hand calculation: what each does to the bytes on links and to the time of a collective.
//
// The machine: two nodes of 8 H200, a 50 GB/s NIC a GPU of which NCCL reaches 48 GB/s, NVLink at 370.8 GB/s a GPU. An
// all-gather of 4 GiB on its 16 ranks is a ring: 15/16 of 4 GiB leave each node over its 8 NICs, 503,316,480 B each.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sim/core/json.h"
#include "sim/network/collectives.h"

namespace longhaul {
namespace {

constexpr std::int64_t kGather = std::int64_t{4} << 30;
constexpr double kNicBytes = static_cast<double>(kGather) * 15 / 16 / 8;

Cluster cluster_of(const std::string& list, int gpus = 16, const std::string& network = "{}") {
  const std::string text = R"({"base": "dgx-h200-ndr", "network": )" + network + R"(, "what_if": )" + list + "}";
  const auto topology = parse_topology(*parse_json(text, "s.json"), "s.json", "", LONGHAUL_SOURCE_ROOT);
  return *make_cluster(*topology, gpus);
}

std::vector<int> all_ranks(const Cluster& cluster) {
  std::vector<int> ranks(static_cast<std::size_t>(cluster.gpus()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Transfer gather(const Cluster& cluster) {
  return Collectives(cluster).all_gather(all_ranks(cluster), {kGather / cluster.gpus()});
}

Transfer swap(const Cluster& cluster, Bytes per_peer) {
  return Collectives(cluster).all_to_all(all_ranks(cluster), per_peer);
}

Transfer message(const Cluster& cluster, int from, int to, Bytes bytes) {
  const std::vector<PeerMessage> one = {{from, to, bytes}};
  return Collectives(cluster).exchange(one);
}

std::int64_t load(const Cluster& cluster, const Transfer& transfer, const std::string& name) {
  for (const LinkLoad& of : transfer.loads) {
    if (cluster.links()[static_cast<std::size_t>(of.link)].name == name) return of.bytes;
  }
  return 0;
}

// One NIC at half its rate holds up the whole ring: every byte passes every member. 503,316,480 B / 24 GB/s = 20,971.52
// us and at most 2 % more (a ring reaches that much less than the class says on InfiniBand, nccl.json), and twice that
// at a quarter; start-up is as it was.
TEST(WhatIfTimes, ANicAtHalfRateDoublesARing) {
  const Transfer healthy = gather(cluster_of("[]"));
  const Transfer quarter = gather(cluster_of(R"([{"links": "n1.nic5<", "scale_bandwidth": 0.25}])"));
  for (const char* list :
       {R"([{"links": "n*.nic*", "scale_bandwidth": 0.5}])", R"([{"links": "n1.nic5<", "scale_bandwidth": 0.5}])"}) {
    const Transfer slow = gather(cluster_of(list));
    EXPECT_GE(slow.byte_seconds, kNicBytes / 24e9) << list;
    EXPECT_LE(slow.byte_seconds, 1.02 * kNicBytes / 24e9) << list;
    EXPECT_NEAR(quarter.byte_seconds, 2 * slow.byte_seconds, 1e-12) << list;
    EXPECT_EQ(slow.latency, healthy.latency) << list;
    EXPECT_EQ(slow.loads, healthy.loads) << list;
  }
}

// Background traffic of half a link is half a link.
TEST(WhatIfTimes, BackgroundOfHalfALinkIsHalfTheLink) {
  const Cluster background = cluster_of(R"([{"from": 0, "to": 8, "background_gbytes_per_s": 24}])");
  const Cluster slow = cluster_of(R"([{"links": "n0.nic0>", "scale_bandwidth": 0.5},
                                      {"links": "n1.nic0<", "scale_bandwidth": 0.5}])");
  EXPECT_EQ(gather(background).alone, gather(slow).alone);
  EXPECT_EQ(swap(background, {1 << 20}).alone, swap(slow, {1 << 20}).alone);
  EXPECT_GT(swap(slow, {1 << 20}).alone, swap(cluster_of("[]"), {1 << 20}).alone);
}

// Rail 2 at a quarter: a message on it takes four times as long, one on rail 3 what it took.
TEST(WhatIfTimes, ASlowRailSlowsOnlyWhatUsesIt) {
  const Cluster healthy = cluster_of("[]");
  const Cluster slow = cluster_of(R"([{"rail": 2, "scale_bandwidth": 0.25}])");
  constexpr Bytes kMessage{1 << 30};
  EXPECT_EQ(message(slow, 3, 11, kMessage).alone, message(healthy, 3, 11, kMessage).alone);
  const Transfer far = message(slow, 2, 10, kMessage);
  EXPECT_NEAR(far.byte_seconds, 4 * message(healthy, 2, 10, kMessage).byte_seconds, 1e-9);
  EXPECT_NEAR(far.byte_seconds, static_cast<double>(kMessage.value) / 12e9, 0.02 * far.byte_seconds);
  // From GPU 0 to GPU 10 NCCL changes to the rail of the peer first (PXN): the slow one.
  EXPECT_EQ(message(slow, 0, 10, kMessage).byte_seconds, far.byte_seconds);
}

// A leaf a node, 2:1: the uplink of a rail's leaf has half the rate of the one NIC below it. All-to-all puts 8 m on
// each NIC and as much on each uplink, which takes twice as long. Inside a node nothing changes.
TEST(WhatIfTimes, OversubscriptionOfTwoHalvesWhatCrossesLeaves) {
  const Cluster even = cluster_of("[]", 16, R"({"nodes_per_leaf": 1})");
  const Cluster over = cluster_of("[]", 16, R"({"nodes_per_leaf": 1, "oversubscription": 2})");
  constexpr std::int64_t kPair = 256 << 20;
  const Transfer slow = swap(over, {kPair});
  EXPECT_EQ(load(over, slow, "n0.nic3>"), 8 * kPair);
  EXPECT_EQ(load(over, slow, "leaf0.r3>"), 8 * kPair);
  EXPECT_NEAR(slow.byte_seconds, 2 * swap(even, {kPair}).byte_seconds, 1e-9);
  EXPECT_EQ(slow.latency, swap(even, {kPair}).latency);
  EXPECT_EQ(message(over, 0, 1, {kPair}).alone, message(even, 0, 1, {kPair}).alone);
}

// Eight messages from a node to another, each over its own NIC. Spread, none waits for another; by hash, c of them take
// one spine and the last of those ends after c times as long.
TEST(WhatIfTimes, HashedFlowsThatMeetOnASpineShareIt) {
  const std::string tree = R"("fabric": "fat-tree", "nodes_per_leaf": 1)";
  const Cluster spread = cluster_of("[]", 16, "{" + tree + "}");
  const Cluster hash = cluster_of("[]", 16, "{" + tree + R"(, "routing": "hash"})");
  constexpr std::int64_t kMessage = 1 << 30;
  std::vector<PeerMessage> messages;
  for (int i = 0; i < 8; ++i) messages.push_back({i, 8 + i, {kMessage}});
  const Transfer alone = Collectives(spread).exchange(messages);
  const Transfer met = Collectives(hash).exchange(messages);
  std::int64_t most = 0;
  for (int spine = 0; spine < 8; ++spine) {
    most = std::max(most, load(hash, met, "leaf0.r0.s" + std::to_string(spine) + ">"));
  }
  const std::int64_t sharing = most / kMessage;
  ASSERT_GE(sharing, 2);
  EXPECT_NEAR(met.byte_seconds, static_cast<double>(sharing) * alone.byte_seconds, 1e-9);
}

// A GPU whose NVLink has half its rate: 7/8 of 4 GiB enter it at 185.4 GB/s, 20,270.2 us.
TEST(WhatIfTimes, AnNvLinkAtHalfRateHoldsUpTheRingOfItsNode) {
  const Transfer slow = gather(cluster_of(R"([{"links": "n0.g3.nvl", "scale_bandwidth": 0.5}])", 8));
  EXPECT_NEAR(slow.byte_seconds, static_cast<double>(kGather) * 7 / 8 / 185.4e9, 1e-12);
  EXPECT_EQ(slow.latency, gather(cluster_of("[]", 8)).latency);
}

// NIC 0 of node 0 down, all-to-all of m a pair. What went to GPU 8, on rail 0, goes over the rail of each sender
// instead, GPU 0's over the first one left: NIC k of node 0 carries 8 m to GPU 8 + k and m more, NIC 1 another m.
TEST(WhatIfTimes, ANicDownMovesItsBytesToTheOthers) {
  constexpr std::int64_t kPair = 1 << 20;
  const Cluster cluster = cluster_of(R"([{"links": "n0.nic0", "down": true}])");
  const Transfer transfer = swap(cluster, {kPair});
  EXPECT_EQ(load(cluster, transfer, "n0.nic0>"), 0);
  std::int64_t sum = 0;
  for (int nic = 1; nic < 8; ++nic) sum += load(cluster, transfer, "n0.nic" + std::to_string(nic) + ">");
  EXPECT_EQ(sum, 64 * kPair);
  EXPECT_EQ(load(cluster, transfer, "n0.nic1>"), 10 * kPair);
  for (int nic = 2; nic < 8; ++nic) {
    EXPECT_EQ(load(cluster, transfer, "n0.nic" + std::to_string(nic) + ">"), 9 * kPair) << nic;
  }
  EXPECT_GT(transfer.alone, swap(cluster_of("[]"), {kPair}).alone);
}

// The NVLink of GPU 3 down: (1 + 1/8) S that came over it at 370.8 GB/s come over the network, at 48 GB/s and more than
// once; what the latency was it still is.
TEST(WhatIfTimes, AnNvLinkDownKeepsTheLatencyOfASwitchedAllReduce) {
  const Cluster healthy = cluster_of("[]");
  const Cluster cluster = cluster_of(R"([{"links": "n0.g3.nvl", "down": true}])");
  for (const std::int64_t bytes : {std::int64_t{64} << 20, std::int64_t{256} << 20, std::int64_t{1} << 30}) {
    const Transfer before = Collectives(healthy).all_reduce(all_ranks(healthy), {bytes});
    const Transfer after = Collectives(cluster).all_reduce(all_ranks(cluster), {bytes});
    ASSERT_EQ(after.algorithm, NcclAlgorithm::kNvlsTree);
    EXPECT_EQ(after.latency, before.latency) << bytes;
    EXPECT_GT(after.byte_seconds, 5 * before.byte_seconds) << bytes;
  }
}

// Ten times the wire's latency on the NICs, both of a step: 9 x 2.7 us more for one hop, nothing more for bytes.
TEST(WhatIfTimes, LatencyLengthensEveryStepOverIt) {
  const Transfer healthy = message(cluster_of("[]"), 0, 8, {1 << 30});
  const Transfer slow = message(cluster_of(R"([{"links": "n*.nic*", "scale_latency": 10}])"), 0, 8, {1 << 30});
  EXPECT_EQ((slow.latency - healthy.latency).ps(), 9 * 2'700'000);
  EXPECT_EQ(slow.byte_seconds, healthy.byte_seconds);
}

}  // namespace
}  // namespace longhaul
