// Closed forms of ring collectives and all-to-all: bytes on links exactly, times by bandwidth.
#include <gtest/gtest.h>

#include "sim/network/collectives.h"
#include "sim/network/protocol.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

std::vector<PeerMessage> all_to_all(const std::vector<int>& ranks, std::int64_t per_peer) {
  std::vector<PeerMessage> messages;
  for (const int from : ranks) {
    for (const int to : ranks) messages.push_back({from, to, Bytes{per_peer}});
  }
  return messages;
}

// NCCL's bandwidth of a large ring over NVSwitch: every rank sends (n-1)/n of the buffer over its own link. Time of the
// byte phase: S (n-1)/n / B with B = 0.824 x 450 = 370.8 GB/s.
TEST(RingOracle, AllGatherInsideANode) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 8);
  Collectives collectives(cluster);
  const std::int64_t per_rank = 1'000'000'000;
  const Transfer gather = collectives.all_gather(rank_range(8), Bytes{per_rank});
  EXPECT_EQ(gather.protocol, Protocol::kSimple);
  ASSERT_EQ(gather.loads.size(), 16u);
  for (const LinkLoad& load : gather.loads) EXPECT_EQ(load.bytes, 7 * per_rank);
  EXPECT_DOUBLE_EQ(gather.byte_seconds, 7e9 / 370.8e9);
  EXPECT_EQ(gather.intra_node_bytes, 8 * 7 * per_rank);
  EXPECT_EQ(gather.inter_node_bytes, 0);
  for (const MemberTraffic& member : gather.members) {
    EXPECT_EQ(member.sent_intra_node, 7 * per_rank);
    EXPECT_EQ(member.received, 7 * per_rank);
  }
}

// Start-up and steps, Simple, Hopper: 4.4 + 8.9 + 7 x (2.8 + 512 KiB / 230 GB/s) us, and the local copy of 0.54 of a
// rank's part.
TEST(RingOracle, LatencyOfALargeAllGather) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 8);
  Collectives collectives(cluster);
  const Transfer gather = collectives.all_gather(rank_range(8), Bytes{1'000'000'000});
  const double expected_us = 4.4 + 8.9 + 7 * (2.8 + 524288 / 230e3) + 0.54 * 1e9 / 370.8e3;
  EXPECT_NEAR(gather.latency.us(), expected_us, 1e-5);
}

// All-reduce moves twice what all-gather of the same buffer does: 2 (n-1)/n S a rank.
TEST(RingOracle, AllReduceIsTwoGathers) {
  const Cluster cluster = shipped_cluster("dgx-h100-ndr", 8);
  Collectives collectives(cluster);
  const Transfer gather = collectives.all_gather(rank_range(8), Bytes{100'000'000});
  const Transfer reduce = collectives.all_reduce(rank_range(8), Bytes{800'000'000});
  ASSERT_EQ(gather.loads.size(), reduce.loads.size());
  for (std::size_t i = 0; i < gather.loads.size(); ++i) EXPECT_EQ(reduce.loads[i].bytes, 2 * gather.loads[i].bytes);
  EXPECT_DOUBLE_EQ(reduce.byte_seconds, 2 * gather.byte_seconds);
}

// A ring over D nodes of eight: every node boundary is crossed by one ring's traffic T = (n-1) x part, an eighth by
// each NIC in each direction; NVLink carries the other seven eighths of every member.
TEST(RingOracle, AllGatherOverNodes) {
  for (const int nodes : {2, 3, 128}) {
    const Cluster cluster = shipped_cluster("dgx-h200-ndr", 8 * nodes);
    Collectives collectives(cluster);
    const std::int64_t per_rank = 80'000;
    const std::int64_t total = (8 * nodes - 1) * per_rank;
    const Transfer gather = collectives.all_gather(rank_range(8 * nodes), Bytes{per_rank});
    ASSERT_EQ(gather.loads.size(), static_cast<std::size_t>(nodes * 32));
    for (const LinkLoad& load : gather.loads) {
      const bool nic = cluster.links()[static_cast<std::size_t>(load.link)].scope == LinkScope::kInterNode;
      EXPECT_EQ(load.bytes, nic ? total / 8 : total * 7 / 8);
    }
    EXPECT_EQ(gather.inter_node_bytes, nodes * total);
    EXPECT_EQ(gather.intra_node_bytes, (8 * nodes - nodes) * total);
  }
}

// Large over two nodes: the tighter of NIC, T/8 at 48 GB/s, and NVLink, 7T/8 at 370.8 GB/s; here the NIC.
TEST(RingOracle, TwoNodesAreLimitedByTheNics) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  Collectives collectives(cluster);
  const Transfer gather = collectives.all_gather(rank_range(16), Bytes{800'000'000});
  const double traffic = 15 * 800e6;
  EXPECT_DOUBLE_EQ(gather.byte_seconds, std::max(traffic / 8 / 48e9, traffic * 7 / 8 / 370.8e9));
  // Steps, Simple: 4.4 + 14 x max(2.8, 3) + 1 x 6 us.
  EXPECT_NEAR(gather.latency.us(), 4.4 + 14 * 3 + 6, 1e-6);
}

// Four A100 with direct pairs: the six cyclic orders use each of the twelve directed links equally, so a member's
// traffic of 3 parts goes out over its three links, one part each: 3 S/4 at 3 x 80 GB/s.
TEST(RingOracle, PairLinksShareARing) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 4);
  Collectives collectives(cluster);
  const Transfer gather = collectives.all_gather(rank_range(4), Bytes{240'000'000});
  ASSERT_EQ(gather.loads.size(), 12u);
  for (const LinkLoad& load : gather.loads) EXPECT_EQ(load.bytes, 240'000'000);
  EXPECT_DOUBLE_EQ(gather.byte_seconds, 3 * 240e6 / (3 * 80e9));
}

// One member a node (a data-parallel group of stride 8): each NIC carries the whole traffic of its member.
TEST(RingOracle, StridedGroup) {
  const Cluster cluster = shipped_cluster("dgx-a100-hdr", 32);
  Collectives collectives(cluster);
  const Transfer scatter = collectives.reduce_scatter(rank_range(4, 3, 8), Bytes{50'000'000});
  const auto loads = loads_by_name(cluster, scatter);
  ASSERT_EQ(loads.size(), 8u);
  for (int node = 0; node < 4; ++node) {
    EXPECT_EQ(loads.at("n" + std::to_string(node) + ".nic3>"), 150'000'000);
    EXPECT_EQ(loads.at("n" + std::to_string(node) + ".nic3<"), 150'000'000);
  }
  EXPECT_EQ(scatter.intra_node_bytes, 0);
}

// All-to-all: a rank sends (n-1)/n of its buffer, and as much comes in. Many sends at once reach 0.83 of NVLink.
TEST(ExchangeOracle, AllToAllInsideANode) {
  const Cluster cluster = shipped_cluster("dgx-h100-ndr", 8);
  Collectives collectives(cluster);
  const Transfer exchange = collectives.exchange(all_to_all(rank_range(8), 10'000'000));
  ASSERT_EQ(exchange.loads.size(), 16u);
  for (const LinkLoad& load : exchange.loads) EXPECT_EQ(load.bytes, 70'000'000);
  EXPECT_DOUBLE_EQ(exchange.byte_seconds, 70e6 / (0.83 * 370.8e9));
}

// BASP paper, the 2 x 4 testbed, worked values for N = 8, G = 4, B = 2, S = 16384: Llama-3.2-1B. b = 41,943,040 bytes a
// rank. Ulysses, 8 ranks: leaves the GPU b 7/8 = 36.70 MB, leaves the node b (P-g)/P = b 4/8 = 20.97 MB. BASP, 4 ranks
// on one node: 31.46 MB and nothing.
TEST(ExchangeOracle, BaspTestbedVolumes) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 8);
  Collectives collectives(cluster);
  const std::int64_t buffer = 41'943'040;
  const Transfer ulysses = collectives.exchange(all_to_all(rank_range(8), buffer / 8));
  for (const MemberTraffic& member : ulysses.members) {
    EXPECT_EQ(member.sent_intra_node + member.sent_inter_node, 36'700'160);
    EXPECT_EQ(member.sent_inter_node, 20'971'520);
    EXPECT_EQ(member.received, 36'700'160);
  }
  const Transfer basp = collectives.exchange(all_to_all(rank_range(4), buffer / 4));
  for (const MemberTraffic& member : basp.members) {
    EXPECT_EQ(member.sent_intra_node, 31'457'280);
    EXPECT_EQ(member.sent_inter_node, 0);
  }
  // The node's one NIC carries all of it: 4 x 20.97 MB at 0.75 x 50 GB/s; each PCIe link only its own GPU's part.
  EXPECT_EQ(loads_by_name(cluster, ulysses).at("n0.nic0>"), 4 * 20'971'520);
  EXPECT_EQ(loads_by_name(cluster, ulysses).at("n0.g2.pcie>"), 20'971'520);
  EXPECT_DOUBLE_EQ(ulysses.byte_seconds, 4 * 20'971'520 / 37.5e9);
  // BASP: b/4 on each pair link, at 0.83 x 80 GB/s.
  EXPECT_DOUBLE_EQ(basp.byte_seconds, 10'485'760 / (0.83 * 80e9));
}

// Between rails a message first changes GPU over NVLink (PXN): it uses the receiver's rail.
TEST(ExchangeOracle, BetweenRails) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  Collectives collectives(cluster);
  const PeerMessage message{1, 8 + 6, Bytes{1'000'000}};
  const auto loads = loads_by_name(cluster, collectives.exchange({&message, 1}));
  const std::map<std::string, std::int64_t> expected = {
      {"n0.g1.nvl>", 1'000'000}, {"n0.g6.nvl<", 1'000'000}, {"n0.nic6>", 1'000'000}, {"n1.nic6<", 1'000'000}};
  EXPECT_EQ(loads, expected);
}

// A pipeline edge: one peer, the NIC's full rate.
TEST(ExchangeOracle, PipelineEdge) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  Collectives collectives(cluster);
  const PeerMessage message{3, 11, Bytes{96'000'000}};
  const Transfer edge = collectives.exchange({&message, 1});
  EXPECT_DOUBLE_EQ(edge.byte_seconds, 2e-3);
  EXPECT_NEAR(edge.latency.us(), 4.4 + 6.3 + 6, 1e-6);
}

}  // namespace
}  // namespace longhaul
