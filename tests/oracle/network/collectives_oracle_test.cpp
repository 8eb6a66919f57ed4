// Closed forms of collectives: bytes on links exactly; times as NCCL's model gives them on healthy links.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/network/collectives.h"
#include "sim/network/shipped_nccl.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

NcclTime model_time(const Cluster& cluster, NcclCollective collective, int ranks, int domains, double bytes) {
  return nccl_time(shipped_nccl(), nccl_machine(cluster.topology()),
                   {collective, ranks, domains, ranks / domains, bytes});
}

// NCCL's bandwidth of a large ring over NVSwitch: every rank sends (n-1)/n of the buffer over its own link. Time of the
// byte phase: S (n-1)/n / B with B = 0.824 x 450 = 370.8 GB/s.
TEST(RingOracle, AllGatherInsideANode) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 8);
  Collectives collectives(cluster);
  const std::int64_t per_rank = 1'000'000'000;
  const Transfer gather = collectives.all_gather(rank_range(8), Bytes{per_rank});
  EXPECT_EQ(gather.algorithm, NcclAlgorithm::kRing);
  EXPECT_EQ(gather.protocol, NcclProtocol::kSimple);
  ASSERT_EQ(gather.loads.size(), 16u);
  for (const LinkLoad& load : gather.loads) EXPECT_EQ(load.bytes, 7 * per_rank);
  EXPECT_GE(gather.byte_seconds, 7e9 / 370.8e9);
  EXPECT_EQ(gather.intra_node_bytes, 8 * 7 * per_rank);
  EXPECT_EQ(gather.inter_node_bytes, 0);
  for (const MemberTraffic& member : gather.members) {
    EXPECT_EQ(member.sent_intra_node, 7 * per_rank);
    EXPECT_EQ(member.received, 7 * per_rank);
  }
}

// Alone on healthy links a transfer takes what NCCL's model says, whatever algorithm it takes; its byte phase is what
// the links need at least.
TEST(TimeOracle, HealthyLinksTakeTheModelsTime) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 64);
  Collectives collectives(cluster);
  for (std::int64_t bytes = 1024; bytes <= std::int64_t{1} << 34; bytes *= 4) {
    for (const int domains : {1, 2, 8}) {
      const int n = 8 * domains;
      const std::vector<int> ranks = rank_range(n);
      const auto check = [&](const Transfer& transfer, NcclCollective collective) {
        const NcclTime time = model_time(cluster, collective, n, domains, static_cast<double>(bytes));
        const std::string where = fmt::format("{} of {} bytes, {} ranks, {} {}", nccl_name(collective), bytes, n,
                                              nccl_name(time.algorithm), nccl_name(time.protocol));
        EXPECT_EQ(transfer.algorithm, time.algorithm) << where;
        EXPECT_EQ(transfer.channels, time.channels) << where;
        EXPECT_NEAR(transfer.alone.us(), time.total_us(), 2e-6) << where;  // two roundings to a picosecond
        double links = 0;
        for (const LinkLoad& load : transfer.loads) {
          links = std::max(links, Bytes{load.bytes} / cluster.links()[static_cast<std::size_t>(load.link)].bandwidth);
        }
        EXPECT_EQ(transfer.byte_seconds, std::max(links, time.bytes_us * 1e-6)) << where;
      };
      check(collectives.all_reduce(ranks, Bytes{bytes}), NcclCollective::kAllReduce);
      check(collectives.all_gather(ranks, Bytes{bytes / n}), NcclCollective::kAllGather);
      check(collectives.reduce_scatter(ranks, Bytes{bytes / n}), NcclCollective::kReduceScatter);
      check(collectives.broadcast(ranks, Bytes{bytes}), NcclCollective::kBroadcast);
      check(collectives.all_to_all(ranks, Bytes{bytes / n}), NcclCollective::kAllToAll);
    }
  }
}

// All-reduce by a ring moves twice what all-gather of the same buffer does: 2 (n-1)/n S a rank. (Ampere: no NVLS.)
TEST(RingOracle, AllReduceIsTwoGathers) {
  const Cluster cluster = shipped_cluster("dgx-a100-hdr", 8);
  Collectives collectives(cluster);
  const Transfer gather = collectives.all_gather(rank_range(8), Bytes{100'000'000});
  const Transfer reduce = collectives.all_reduce(rank_range(8), Bytes{800'000'000});
  ASSERT_EQ(gather.loads.size(), reduce.loads.size());
  for (std::size_t i = 0; i < gather.loads.size(); ++i) EXPECT_EQ(reduce.loads[i].bytes, 2 * gather.loads[i].bytes);
  EXPECT_EQ(reduce.algorithm, NcclAlgorithm::kRing);
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
  EXPECT_GE(gather.byte_seconds, std::max(traffic / 8 / 48e9, traffic * 7 / 8 / 370.8e9));
  EXPECT_LE(gather.byte_seconds, 1.1 * traffic / 8 / 48e9);
}

// Four A100 with direct pairs: the six cyclic orders use each of the twelve directed links equally, so a member's
// traffic of 3 parts goes out over its three links, one part each: 3 S/4 at 3 x 80 GB/s.
TEST(RingOracle, PairLinksShareARing) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 4);
  Collectives collectives(cluster);
  const Transfer gather = collectives.all_gather(rank_range(4), Bytes{240'000'000});
  ASSERT_EQ(gather.loads.size(), 12u);
  for (const LinkLoad& load : gather.loads) EXPECT_EQ(load.bytes, 240'000'000);
  EXPECT_GE(gather.byte_seconds, 3 * 240e6 / (3 * 80e9));
  EXPECT_LE(gather.byte_seconds, 1.3 * 3 * 240e6 / (3 * 80e9));
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

// All-to-all: a rank sends (n-1)/n of its buffer, and as much comes in.
TEST(ExchangeOracle, AllToAllInsideANode) {
  const Cluster cluster = shipped_cluster("dgx-h100-ndr", 8);
  Collectives collectives(cluster);
  const Transfer exchange = collectives.all_to_all(rank_range(8), Bytes{10'000'000});
  ASSERT_EQ(exchange.loads.size(), 16u);
  for (const LinkLoad& load : exchange.loads) EXPECT_EQ(load.bytes, 70'000'000);
  EXPECT_GE(exchange.byte_seconds, 70e6 / 370.8e9);
}

// BASP paper, the 2 x 4 testbed, worked values for N = 8, G = 4, B = 2, S = 16384: Llama-3.2-1B. b = 41,943,040 bytes a
// rank. Ulysses, 8 ranks: leaves the GPU b 7/8 = 36.70 MB, leaves the node b (P-g)/P = b 4/8 = 20.97 MB. BASP, 4 ranks
// on one node: 31.46 MB and nothing.
TEST(ExchangeOracle, BaspTestbedVolumes) {
  const Cluster cluster = shipped_cluster("a100-40gb-2x4", 8);
  Collectives collectives(cluster);
  const std::int64_t buffer = 41'943'040;
  const Transfer ulysses = collectives.all_to_all(rank_range(8), Bytes{buffer / 8});
  for (const MemberTraffic& member : ulysses.members) {
    EXPECT_EQ(member.sent_intra_node + member.sent_inter_node, 36'700'160);
    EXPECT_EQ(member.sent_inter_node, 20'971'520);
    EXPECT_EQ(member.received, 36'700'160);
  }
  const Transfer basp = collectives.all_to_all(rank_range(4), Bytes{buffer / 4});
  for (const MemberTraffic& member : basp.members) {
    EXPECT_EQ(member.sent_intra_node, 31'457'280);
    EXPECT_EQ(member.sent_inter_node, 0);
  }
  // The node's one NIC carries all of it: 4 x 20.97 MB at 50 GB/s rated; each PCIe link only its own GPU's part.
  EXPECT_EQ(loads_by_name(cluster, ulysses).at("n0.nic0>"), 4 * 20'971'520);
  EXPECT_EQ(loads_by_name(cluster, ulysses).at("n0.g2.pcie>"), 20'971'520);
  EXPECT_GE(ulysses.byte_seconds, 4 * 20'971'520 / 50e9);
  // BASP: b/4 on each pair link of 80 GB/s.
  EXPECT_GE(basp.byte_seconds, 10'485'760 / 80e9);
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

}  // namespace
}  // namespace longhaul
