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

Topology tree(NetworkFabric fabric, int nodes_per_leaf, double leaf_over, int leaves_per_pod, double spine_over) {
  Topology topology = shipped("dgx-a100-hdr");
  topology.network_fabric = fabric;
  topology.nodes_per_leaf = nodes_per_leaf;
  topology.oversubscription = leaf_over;
  topology.leaves_per_pod = leaves_per_pod;
  topology.spine_oversubscription = spine_over;
  return topology;
}

// Two levels, L leaves of n nodes of 8 NICs of 24 GB/s, halves at a leaf's border: min(leaves of a half, L/2) uplinks
// of n x 8 x 24 / f carry, whether the 8 NICs of a node hang on one leaf or on eight.
TEST(Bisection, TwoLevels) {
  for (const NetworkFabric fabric : {NetworkFabric::kRails, NetworkFabric::kFatTree}) {
    for (const double f : {1.0, 1.5, 3.0}) {
      EXPECT_DOUBLE_EQ(bisection(tree(fabric, 4, f, 0, 1), 8 * 4 * 6), 3 * 4 * 8 * 24e9 / f);
    }
  }
}

// Three levels: 4 pods of 2 leaves of 2 nodes. Halves are two pods each; a pod's way to the core carries
// 2 x 2 x 8 x 24 / (f x g). Three pods: the border is in the second, after one of its two leaves: pod 0 sends up what
// its way to the core carries, leaf 2 of pod 1 its uplinks to the spine: 4 x 192 / (f g) + 2 x 192 / f.
TEST(Bisection, ThreeLevels) {
  for (const NetworkFabric fabric : {NetworkFabric::kRails, NetworkFabric::kFatTree}) {
    for (const double f : {1.0, 2.0}) {
      for (const double g : {1.0, 2.0, 5.0}) {
        const double node = 8 * 24e9;
        EXPECT_DOUBLE_EQ(bisection(tree(fabric, 2, f, 2, g), 8 * 16), 2 * 4 * node / (f * g));
        EXPECT_DOUBLE_EQ(bisection(tree(fabric, 2, f, 2, g), 8 * 12), 4 * node / (f * g) + 2 * node / f);
      }
    }
  }
}

// Levels of the same tree, smallest first: 8 GPUs of a node, 16 of a leaf (full NICs of one node), 32 of a pod (a
// leaf's uplinks), all 128 (two pods' ways to the core).
TEST(Bisection, ByLevel) {
  const auto levels = bisections(*make_cluster(tree(NetworkFabric::kRails, 2, 2, 2, 4), 128));
  const double node = 8 * 24e9;
  ASSERT_EQ(levels.size(), 4u);
  EXPECT_EQ(levels[0].level, "node");
  EXPECT_DOUBLE_EQ(levels[0].rate.value, 4 * 240e9);
  EXPECT_EQ(levels[1].level, "leaf");
  EXPECT_EQ(levels[1].gpus, 16);
  EXPECT_DOUBLE_EQ(levels[1].rate.value, node);
  EXPECT_EQ(levels[2].level, "pod");
  EXPECT_EQ(levels[2].gpus, 32);
  EXPECT_DOUBLE_EQ(levels[2].rate.value, 2 * node / 2);
  EXPECT_EQ(levels[3].level, "cluster");
  EXPECT_DOUBLE_EQ(levels[3].rate.value, 2 * 4 * node / (2 * 4));
}

// The same with every uplink apart: the sum of a level's links does not change.
TEST(Bisection, OfHashedLinksIsThatOfSpreadOnes) {
  for (const double f : {1.0, 2.0}) {
    Topology topology = tree(NetworkFabric::kRails, 2, f, 2, 2);
    const double spread = bisection(topology, 128);
    topology.routing = Routing::kHash;
    EXPECT_NEAR(bisection(topology, 128), spread, 1e-6 * spread);
  }
}

// NVL72: half a rack faces the other half over 36 x 721.8 GB/s; two racks only over 18 x 4 NICs of 400 Gb/s x 0.96.
TEST(Bisection, Nvl72) {
  const auto levels = bisections(*make_cluster(shipped("gb200-nvl72"), 144));
  ASSERT_EQ(levels.size(), 3u);
  EXPECT_DOUBLE_EQ(levels[0].rate.value, 2 * 721.8e9);
  EXPECT_EQ(levels[1].level, "NVLink domain");
  EXPECT_DOUBLE_EQ(levels[1].rate.value, 36 * 721.8e9);
  EXPECT_EQ(levels[2].gpus, 144);
  EXPECT_DOUBLE_EQ(levels[2].rate.value, 72 * 48e9);
}

// Two levels of NVLink switches, 4 nodes of 8: half the domain is 2 nodes, whose switches carry 1000 x 0.824 each.
TEST(Bisection, TwoLevelsOfNvLinkSwitches) {
  Topology topology = shipped("dgx-h200-ndr");
  topology.gpus_per_domain = 32;
  topology.nvswitch = topology.nvlink;
  topology.nvswitch->name = "nvswitch";
  topology.nvswitch->rated.value = 1000e9;
  const auto levels = bisections(*make_cluster(topology, 32));
  ASSERT_EQ(levels.size(), 2u);
  EXPECT_DOUBLE_EQ(levels[0].rate.value, 4 * 370.8e9);
  EXPECT_DOUBLE_EQ(levels[1].rate.value, 2 * 824e9);
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
