#include "sim/cluster/cluster.h"

#include <gtest/gtest.h>

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
