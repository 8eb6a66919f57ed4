// Closed forms of a cluster's size and bisection, and the testbeds of the papers.
#include <gtest/gtest.h>

#include "sim/cluster/describe.h"

namespace longhaul {
namespace {

Topology shipped(const std::string& name) { return *read_topology(name, LONGHAUL_SOURCE_ROOT); }
double bisection(const Topology& topology, int gpus) {
  return describe_topology(*make_cluster(topology, gpus)).bisection.value;
}

// D nodes of eight NICs, non-blocking: floor(D/2) x 8 NICs, each 400 Gb/s x 0.96.
TEST(Bisection, RailsAreNonBlocking) {
  EXPECT_DOUBLE_EQ(bisection(shipped("dgx-h200-ndr"), 16), 8 * 48e9);
  EXPECT_DOUBLE_EQ(bisection(shipped("dgx-h200-ndr"), 8 * 5), 2 * 8 * 48e9);
  EXPECT_DOUBLE_EQ(bisection(shipped("dgx-h100-ndr"), 16384), 1024 * 8 * 48e9);
}

// Two leaf groups of 4 nodes, 4:1: the halves talk through 8 rails x 4 x 25 GB/s / 4 x 0.96, a quarter of the NICs.
TEST(Bisection, OversubscribedLeaves) {
  Topology topology = shipped("dgx-a100-hdr");
  topology.nodes_per_leaf = 4;
  topology.oversubscription = 4;
  EXPECT_DOUBLE_EQ(bisection(topology, 64), 4 * 8 * 24e9 / 4);
  // One group of 4 nodes: its halves meet at the leaves, at full rate.
  EXPECT_DOUBLE_EQ(bisection(topology, 32), 2 * 8 * 24e9);
  // 6 nodes: nodes 0-2 send to node 3 under the same leaves (one node's NICs), and up (a quarter of four nodes').
  EXPECT_DOUBLE_EQ(bisection(topology, 48), 8 * 24e9 + 8 * 24e9);
}

// Inside a node: four GPUs on a switch face four, 4 x 370.8 GB/s; two GPUs on pair links face two over 2 x 2 links.
TEST(Bisection, InsideANode) {
  EXPECT_DOUBLE_EQ(bisection(shipped("dgx-h200-ndr"), 8), 4 * 370.8e9);
  EXPECT_DOUBLE_EQ(bisection(shipped("a100-40gb-2x4"), 4), 4 * 80e9);
  EXPECT_DOUBLE_EQ(bisection(shipped("a100-40gb-2x4"), 3), 2 * 80e9);
}

// BASP paper and its reading: 2 nodes of 4 A100-40GB, NV4 pairs of 100 GB/s one way, 300 GB/s a GPU, 50 GB/s a node.
TEST(Testbeds, Basp) {
  const Topology topology = shipped("a100-40gb-2x4");
  EXPECT_EQ(topology.nodes, 2);
  EXPECT_EQ(topology.gpus_per_node, 4);
  EXPECT_EQ(topology.node_fabric, NodeFabric::kPairs);
  EXPECT_DOUBLE_EQ(topology.nvlink.rated.value * 3, 300e9);
  EXPECT_DOUBLE_EQ(topology.nic.rated.value * topology.nics_per_node, 50e9);
  EXPECT_EQ(topology.device.generation, GpuGeneration::kAmpere);
  const TopologySummary summary = describe_topology(*make_cluster(topology, 8));
  ASSERT_EQ(summary.link_classes.size(), 3u);
  EXPECT_EQ(summary.link_classes[0].links, 2 * 4 * 3);
  EXPECT_EQ(summary.link_classes[1].links, 2 * 2);
  EXPECT_EQ(summary.link_classes[2].links, 2 * 4 * 2);
}

// DPP paper, section 5: 4 nodes of 8 A800-80GB, NVLink 400 GB/s both ways, 400 Gb/s InfiniBand.
TEST(Testbeds, Dpp) {
  const Topology topology = shipped("a800-4x8");
  EXPECT_EQ(topology.nodes, 4);
  EXPECT_EQ(topology.gpus_per_node, 8);
  EXPECT_DOUBLE_EQ(topology.nvlink.rated.value * 2, 400e9);
  EXPECT_DOUBLE_EQ(topology.nic.rated.value * topology.nics_per_node, 50e9);
}

// O(links): four directed links a GPU on a DGX, whatever the number of GPUs; the route of the farthest pair is there.
TEST(Size, SixteenThousandGpus) {
  const Cluster cluster = *make_cluster(shipped("dgx-h200-ndr"), 16384);
  EXPECT_EQ(cluster.links().size(), 4u * 16384u);
  EXPECT_EQ(describe_route(cluster, 7, 16383).links, (std::vector<std::string>{"n0.nic7>", "n2047.nic7<"}));
}

}  // namespace
}  // namespace longhaul
