#include "sim/cluster/cluster.h"

#include <gtest/gtest.h>

#include <set>

#include "sim/cluster/describe.h"

namespace longhaul {
namespace {

using Names = std::vector<std::string>;

Topology shipped(const std::string& name) { return *read_topology(name, LONGHAUL_SOURCE_ROOT); }

TEST(Routes, OnNvSwitchAndRails) {
  const Cluster cluster = *make_cluster(shipped("dgx-h200-ndr"), 1024);
  EXPECT_EQ(describe_route(cluster, 3, 3).links, Names{});
  EXPECT_EQ(describe_route(cluster, 0, 5).links, (Names{"n0.g0.nvl>", "n0.g5.nvl<"}));
  EXPECT_EQ(describe_route(cluster, 8 * 100 + 2, 2).links, (Names{"n100.nic2>", "n0.nic2<"}));
  EXPECT_EQ(describe_route(cluster, 1, 8 * 127 + 6).links,
            (Names{"n0.g1.nvl>", "n0.g6.nvl<", "n0.nic6>", "n127.nic6<"}));
  EXPECT_DOUBLE_EQ(describe_route(cluster, 1, 8 * 127 + 6).bandwidth.value, 48e9);
  // One NVLink step 0.6 us, one network step 2.7 us.
  EXPECT_EQ(describe_route(cluster, 1, 8 * 127 + 6).latency, Time::from_us(3.3));
}

TEST(Routes, OnPairLinksAndASharedNic) {
  const Cluster cluster = *make_cluster(shipped("a100-40gb-2x4"), 8);
  EXPECT_EQ(describe_route(cluster, 0, 3).links, Names{"n0.g0>g3"});
  EXPECT_EQ(describe_route(cluster, 3, 0).links, Names{"n0.g3>g0"});
  EXPECT_EQ(describe_route(cluster, 1, 6).links, (Names{"n0.g1.pcie>", "n0.nic0>", "n1.nic0<", "n1.g2.pcie<"}));
  EXPECT_DOUBLE_EQ(describe_route(cluster, 1, 6).bandwidth.value, 0.8 * 31.5e9);
}

TEST(Routes, ThroughOversubscribedLeaves) {
  Topology topology = shipped("dgx-a100-hdr");
  topology.nodes_per_leaf = 2;
  topology.oversubscription = 4;
  const Cluster cluster = *make_cluster(topology, 40);
  EXPECT_EQ(describe_route(cluster, 3, 8 + 3).links, (Names{"n0.nic3>", "n1.nic3<"}));
  EXPECT_EQ(describe_route(cluster, 8 + 3, 32 + 3).links, (Names{"n1.nic3>", "leaf0.r3>", "leaf2.r3<", "n4.nic3<"}));
  // Two NICs of 25 GB/s under a leaf, four to one: 12.5 GB/s, 0.96 of it.
  EXPECT_DOUBLE_EQ(describe_route(cluster, 8 + 3, 32 + 3).bandwidth.value, 12.5e9 * 0.96);
}

TEST(Routes, TwoGpusShareANic) {
  Topology topology = shipped("dgx-a100-hdr");
  topology.nics_per_node = 4;
  const Cluster cluster = *make_cluster(topology, 16);
  EXPECT_EQ(describe_route(cluster, 0, 8 + 1).links, (Names{"n0.nic0>", "n1.nic0<"}));
  EXPECT_EQ(describe_route(cluster, 0, 8 + 7).links, (Names{"n0.g0.nvl>", "n0.g6.nvl<", "n0.nic3>", "n1.nic3<"}));
}

// Four NICs a GPU: one link of the summed rate, or four of which a flow takes one.
TEST(Routes, SeveralNicsAGpu) {
  Topology topology = shipped("aws-p5");
  const Cluster spread = *make_cluster(topology, 16);
  EXPECT_EQ(describe_route(spread, 3, 8 + 3).links, (Names{"n0.nic3>", "n1.nic3<"}));
  EXPECT_DOUBLE_EQ(describe_route(spread, 3, 8 + 3).bandwidth.value, 4 * 12.5e9 * 0.84);
  EXPECT_DOUBLE_EQ(topology.nic_rate_per_gpu().value, 50e9);
  topology.routing = Routing::kHash;
  const Cluster hash = *make_cluster(topology, 8 * 16);
  std::set<std::string> used;
  for (int node = 1; node < 16; ++node) {
    const RouteSummary route = describe_route(hash, 3, 8 * node + 3);
    ASSERT_EQ(route.links.size(), 2u);
    EXPECT_DOUBLE_EQ(route.bandwidth.value, 12.5e9 * 0.84);
    // In at the NIC of the same number: of the same rail.
    EXPECT_EQ(route.links[0].substr(route.links[0].find(".nic") + 4, 2),
              route.links[1].substr(route.links[1].find(".nic") + 4, 2));
    used.insert(route.links[0]);
  }
  EXPECT_EQ(used, (std::set<std::string>{"n0.nic12>", "n0.nic13>", "n0.nic14>", "n0.nic15>"}));
}

TEST(Routes, InsideARackAndBetweenRacks) {
  const Cluster cluster = *make_cluster(shipped("gb200-nvl72"), 144);
  EXPECT_EQ(cluster.domains(), 2);
  EXPECT_EQ(cluster.domain_of(71), 0);
  EXPECT_EQ(cluster.domain_of(72), 1);
  EXPECT_EQ(describe_route(cluster, 1, 4 * 17 + 2).links, (Names{"n0.g1.nvl>", "n17.g2.nvl<"}));
  EXPECT_EQ(describe_route(cluster, 1, 72 + 2).links, (Names{"n0.g1.nvl>", "n0.g2.nvl<", "n0.nic2>", "n18.nic2<"}));
}

TEST(Routes, OverTwoLevelsOfNvLinkSwitches) {
  Topology topology = shipped("dgx-h200-ndr");
  topology.gpus_per_domain = 16;
  topology.nvswitch = topology.nvlink;
  const Cluster cluster = *make_cluster(topology, 32);
  EXPECT_EQ(describe_route(cluster, 0, 3).links, (Names{"n0.g0.nvl>", "n0.g3.nvl<"}));
  EXPECT_EQ(describe_route(cluster, 0, 11).links, (Names{"n0.g0.nvl>", "n0.nvs>", "n1.nvs<", "n1.g3.nvl<"}));
  EXPECT_EQ(describe_route(cluster, 0, 16).links, (Names{"n0.nic0>", "n2.nic0<"}));
}

// Pods of two leaves of two nodes, every level oversubscribed; the core's 1 us and the spine's 0.5 us on top.
TEST(Routes, ThroughThreeLevels) {
  Topology topology = shipped("dgx-a100-hdr");
  topology.nodes_per_leaf = 2;
  topology.oversubscription = 2;
  topology.leaves_per_pod = 2;
  topology.spine_oversubscription = 4;
  topology.spine_latency = Time::from_us(0.5);
  topology.core_latency = Time::from_us(1);
  const Cluster cluster = *make_cluster(topology, 64);
  EXPECT_EQ(describe_route(cluster, 0, 8).links, (Names{"n0.nic0>", "n1.nic0<"}));
  EXPECT_EQ(describe_route(cluster, 0, 16).links, (Names{"n0.nic0>", "leaf0.r0>", "leaf1.r0<", "n2.nic0<"}));
  const RouteSummary far = describe_route(cluster, 0, 32);
  EXPECT_EQ(far.links, (Names{"n0.nic0>", "leaf0.r0>", "pod0>", "pod1<", "leaf2.r0<", "n4.nic0<"}));
  EXPECT_EQ(far.latency, Time::from_us(2.7 + 0.5 + 1));
  ASSERT_EQ(far.hops.size(), 6u);
  EXPECT_DOUBLE_EQ(far.hops[1].bandwidth.value, 2 * 24e9 / 2);
  EXPECT_DOUBLE_EQ(far.hops[2].bandwidth.value, 4 * 8 * 24e9 / 2 / 4);
}

TEST(Routes, ThroughAClassicFatTree) {
  Topology topology = shipped("dgx-a100-hdr");
  topology.network_fabric = NetworkFabric::kFatTree;
  topology.nodes_per_leaf = 2;
  topology.oversubscription = 2;
  const Cluster cluster = *make_cluster(topology, 64);
  // No rails: each GPU takes its own NIC, and both end on the same leaf.
  EXPECT_EQ(describe_route(cluster, 1, 8 + 6).links, (Names{"n0.nic1>", "n1.nic6<"}));
  EXPECT_EQ(describe_route(cluster, 1, 16 + 6).links, (Names{"n0.nic1>", "leaf0.r0>", "leaf1.r0<", "n2.nic6<"}));
  EXPECT_DOUBLE_EQ(describe_route(cluster, 1, 16 + 6).hops[1].bandwidth.value, 2 * 8 * 24e9 / 2);
}

TEST(Describe, CountsLinksByClass) {
  const TopologySummary summary = describe_topology(*make_cluster(shipped("dgx-h200-ndr"), 128));
  EXPECT_EQ(summary.name, "dgx-h200-ndr");
  EXPECT_EQ(summary.device, "h200");
  EXPECT_EQ(summary.nodes, 16);
  ASSERT_EQ(summary.link_classes.size(), 2u);
  EXPECT_EQ(summary.link_classes[0].name, "nvlink");
  EXPECT_EQ(summary.link_classes[0].links, 256);
  EXPECT_EQ(summary.link_classes[1].name, "nic");
  EXPECT_EQ(summary.link_classes[1].links, 256);
  EXPECT_DOUBLE_EQ(summary.link_classes[1].rated.value, 50e9);
  EXPECT_EQ(summary.link_classes[1].scope, LinkScope::kInterNode);
}

TEST(Cluster, FewerGpusThanANode) {
  const Cluster cluster = *make_cluster(shipped("dgx-h200-ndr"), 5);
  EXPECT_EQ(cluster.nodes(), 1);
  EXPECT_EQ(cluster.gpus(), 5);
  EXPECT_EQ(cluster.gpus_per_node(), 8);
}

TEST(ClusterDeathTest, RoutesAreBetweenRanks) {
  const Cluster cluster = *make_cluster(shipped("dgx-h200-ndr"), 8);
  EXPECT_DEATH(cluster.route(0, 8), "route from rank 0 to 8 of 8");
}

}  // namespace
}  // namespace longhaul
