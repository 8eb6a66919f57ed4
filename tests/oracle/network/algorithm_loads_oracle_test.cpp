// Bytes on every link for each algorithm, from its definition.
#include <gtest/gtest.h>

#include "sim/network/algorithm_loads.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

using Loads = std::map<std::string, std::int64_t>;

struct Put {
  Transfer transfer;
  Loads loads;
};

// What `put` writes for the ranks.
template <class Function>
Put put(const Cluster& cluster, const std::vector<int>& ranks, Function function) {
  LoadSheet sheet(cluster);
  const CommGroup group = make_comm_group(cluster, ranks);
  sheet.begin(ranks);
  function(sheet, group);
  Put out;
  sheet.take(out.transfer);
  out.loads = loads_by_name(cluster, out.transfer);
  return out;
}

std::string gpu(int node, int local, const char* mark) {
  return "n" + std::to_string(node) + ".g" + std::to_string(local) + ".nvl" + mark;
}
std::string nic(int node, int number, const char* mark) {
  return "n" + std::to_string(node) + ".nic" + std::to_string(number) + mark;
}

// ncclGetBtree over 8 nodes: 0 -> 4 -> {2 -> {1, 3}, 6 -> {5, 7}}. Over 6: node 5 (binary 101) would hang on 6 (110),
// which is not there, so it hangs on 4 (100).
TEST(TreeOracle, ParentsAreNcclsOwn) {
  const std::vector<int> eight = {-1, 2, 4, 2, 0, 6, 4, 6};
  const std::vector<int> six = {-1, 2, 4, 2, 0, 4};
  for (int node = 0; node < 8; ++node) EXPECT_EQ(tree_parent(node, 8), eight[static_cast<std::size_t>(node)]) << node;
  for (int node = 0; node < 6; ++node) EXPECT_EQ(tree_parent(node, 6), six[static_cast<std::size_t>(node)]) << node;
  // An even count mirrors the tree, an odd one turns it by one.
  EXPECT_EQ(second_tree_parent(7, 8), -1);
  EXPECT_EQ(second_tree_parent(3, 8), 7);
  EXPECT_EQ(second_tree_parent(1, 3), -1);
  EXPECT_EQ(second_tree_parent(0, 3), 1);
  EXPECT_EQ(second_tree_parent(2, 3), 0);
}

// Who has children in one tree is a leaf of the other (NCCL's reason for the second tree), but for the two roots.
TEST(TreeOracle, InnerNodesOfOneTreeAreLeavesOfTheOther) {
  for (const int count : {2, 4, 8, 12, 16, 36, 128}) {
    std::vector<int> children_first(static_cast<std::size_t>(count));
    std::vector<int> children_second(static_cast<std::size_t>(count));
    for (int node = 0; node < count; ++node) {
      if (tree_parent(node, count) >= 0) ++children_first[static_cast<std::size_t>(tree_parent(node, count))];
      const int second = second_tree_parent(node, count);
      if (second >= 0) ++children_second[static_cast<std::size_t>(second)];
    }
    for (int node = 1; node + 1 < count; ++node) {
      const auto i = static_cast<std::size_t>(node);
      EXPECT_TRUE(children_first[i] == 0 || children_second[i] == 0) << node << " of " << count;
      EXPECT_LE(children_first[i] + children_second[i], 2);
    }
  }
}

// Two nodes of eight, S = 8 x 1000: node 1 hangs on 0 in one tree and 0 on 1 in the other, S/2 up and down each, so a
// node sends S, each of its NICs S/8. Chains: a member is the near end of seven of eight chains and passes what came up
// (7/8 S), and as much down on the way back.
TEST(TreeOracle, TwoNodes) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  const Put tree =
      put(cluster, rank_range(16), [](LoadSheet& sheet, const CommGroup& group) { put_tree(sheet, group, 8000); });
  ASSERT_EQ(tree.loads.size(), 64u);
  for (const auto& [name, bytes] : tree.loads) {
    EXPECT_EQ(bytes, name.find("nic") != std::string::npos ? 1000 : 2 * 7000) << name;
  }
  EXPECT_EQ(tree.transfer.inter_node_bytes, 2 * 8000);
  EXPECT_EQ(tree.transfer.intra_node_bytes, 2 * 2 * 7 * 8000);
}

// Four nodes: the first tree is 0 -> 2 -> {1, 3}, the second 3 -> 1 -> {2, 0}. Edges at nodes 0 to 3: 1 1 3 1 and
// 1 3 1 1; half the buffer on each, so the nodes send S, 2 S, 2 S and S.
TEST(TreeOracle, FourNodes) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 32);
  const Put tree =
      put(cluster, rank_range(32), [](LoadSheet& sheet, const CommGroup& group) { put_tree(sheet, group, 16'000); });
  const std::vector<std::int64_t> out = {16'000, 32'000, 32'000, 16'000};
  for (int node = 0; node < 4; ++node) {
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(tree.loads.at(nic(node, i, ">")), out[static_cast<std::size_t>(node)] / 8);
      EXPECT_EQ(tree.loads.at(nic(node, i, "<")), out[static_cast<std::size_t>(node)] / 8);
    }
  }
}

// One H100 node, NVLS all-reduce of S = n p: a GPU's link carries all n parts up for the reductions, its own among
// them, and its reduced part up once more: (n+1) p; down its result and n multicast parts: (n+1) p. A ring would carry
// 2 (n-1) p. The switch takes in n operands a part and gives one, then takes one and gives n.
TEST(NvlsOracle, AllReduceOnOneNode) {
  const Cluster cluster = shipped_cluster("dgx-h100-ndr", 8);
  for (const int members : {2, 4, 8}) {
    const std::int64_t part = 1000;
    const Put nvls = put(cluster, rank_range(members), [&](LoadSheet& sheet, const CommGroup& group) {
      put_nvls_all_reduce(sheet, group, members * part);
    });
    ASSERT_EQ(nvls.loads.size(), static_cast<std::size_t>(2 * members));
    for (const auto& [name, bytes] : nvls.loads) EXPECT_EQ(bytes, (members + 1) * part) << name;
    EXPECT_EQ(nvls.transfer.merged_bytes, members * (members - 1) * part);
    EXPECT_EQ(nvls.transfer.copied_bytes, members * (members - 1) * part);
    for (const MemberTraffic& member : nvls.transfer.members) {
      EXPECT_EQ(member.sent_intra_node, (members + 1) * part);
      EXPECT_EQ(member.received, (members + 1) * part);
    }
  }
}

// Gather: a part goes up once and down to all n. Scatter: all n parts go up, one result comes down.
TEST(NvlsOracle, GatherAndScatterOnOneNode) {
  const Cluster cluster = shipped_cluster("dgx-h100-ndr", 8);
  const Put gather = put(cluster, rank_range(8), [](LoadSheet& sheet, const CommGroup& group) {
    put_switch_gather(sheet, group, 8, InsideDomain::kNvls, 1000);
  });
  const Put scatter = put(cluster, rank_range(8), [](LoadSheet& sheet, const CommGroup& group) {
    put_switch_scatter(sheet, group, 8, InsideDomain::kNvls, 1000);
  });
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(gather.loads.at(gpu(0, i, ">")), 1000);
    EXPECT_EQ(gather.loads.at(gpu(0, i, "<")), 8000);
    EXPECT_EQ(scatter.loads.at(gpu(0, i, ">")), 8000);
    EXPECT_EQ(scatter.loads.at(gpu(0, i, "<")), 1000);
  }
  EXPECT_EQ(gather.transfer.copied_bytes, 8 * 7 * 1000);
  EXPECT_EQ(scatter.transfer.merged_bytes, 8 * 7 * 1000);
}

// Two nodes of eight, S = 8 p: inside a node as NVLS, (8+1) p up and down; each head's part S/8 goes half up and half
// down in either tree: S/8 out of a NIC and S/8 into it. Four nodes: heads of inner nodes move 2 S/8.
TEST(NvlsTreeOracle, Nodes) {
  const std::int64_t part = 1000;
  for (const int nodes : {2, 4}) {
    const Cluster cluster = shipped_cluster("dgx-h200-ndr", 8 * nodes);
    const Put tree = put(cluster, rank_range(8 * nodes),
                         [&](LoadSheet& sheet, const CommGroup& group) { put_nvls_tree(sheet, group, 8, 8 * part); });
    for (int node = 0; node < nodes; ++node) {
      const bool inner = nodes == 4 && (node == 1 || node == 2);
      for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(tree.loads.at(gpu(node, i, ">")), 9 * part);
        EXPECT_EQ(tree.loads.at(gpu(node, i, "<")), 9 * part);
        EXPECT_EQ(tree.loads.at(nic(node, i, ">")), (inner ? 2 : 1) * part);
        EXPECT_EQ(tree.loads.at(nic(node, i, "<")), (inner ? 2 : 1) * part);
      }
    }
  }
}

// SHARP over four nodes, S = 8 p: every head's part leaves once and comes back once, whatever the number of nodes.
// Inside: seven others send the head its part and get it back (direct), or NVLS does it.
TEST(CollNetOracle, FourNodes) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 32);
  const std::int64_t part = 1000;
  for (const InsideDomain inside : {InsideDomain::kDirect, InsideDomain::kChain, InsideDomain::kNvls}) {
    const Put sharp = put(cluster, rank_range(32), [&](LoadSheet& sheet, const CommGroup& group) {
      put_collnet_all_reduce(sheet, group, 8, inside, 8 * part);
    });
    ASSERT_EQ(sharp.loads.size(), 4u * 32u);
    // Direct: to seven heads their parts, and its own part back to seven members: 14 p. Chain: as a tree's, 2 x 7 p.
    const std::int64_t nvlink = inside == InsideDomain::kNvls ? 9 * part : 14 * part;
    for (const auto& [name, bytes] : sharp.loads) {
      EXPECT_EQ(bytes, name.find("nic") != std::string::npos ? part : nvlink) << name;
    }
    EXPECT_EQ(sharp.transfer.inter_node_bytes, 4 * 8 * part);
    EXPECT_GE(sharp.transfer.merged_bytes, 8 * 3 * part);
  }
}

// SHARP gather over two nodes: a NIC sends its member's part once and takes in the part of its peer.
TEST(CollNetOracle, GatherAndScatter) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  const Put gather = put(cluster, rank_range(16), [](LoadSheet& sheet, const CommGroup& group) {
    put_switch_gather(sheet, group, 8, InsideDomain::kNvls, 1000);
  });
  const Put scatter = put(cluster, rank_range(16), [](LoadSheet& sheet, const CommGroup& group) {
    put_switch_scatter(sheet, group, 8, InsideDomain::kNvls, 1000);
  });
  for (int node = 0; node < 2; ++node) {
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(gather.loads.at(nic(node, i, ">")), 1000);
      EXPECT_EQ(gather.loads.at(nic(node, i, "<")), 1000);
      EXPECT_EQ(gather.loads.at(gpu(node, i, ">")), 2000);    // its own part, and its peer's to the members
      EXPECT_EQ(gather.loads.at(gpu(node, i, "<")), 16'000);  // all parts
      EXPECT_EQ(scatter.loads.at(gpu(node, i, ">")), 16'000);
      EXPECT_EQ(scatter.loads.at(gpu(node, i, "<")), 2000);
      EXPECT_EQ(scatter.loads.at(nic(node, i, ">")), 1000);
    }
  }
}

// PAT over five nodes, one member each: distances 1, 2, 4 with the odd multiples 1 3, 2 and 4 below 5: 2, 1 and 1
// parts. Rank i sends 2 parts to i+1 and 1 each to i+2 and i+4; a scatter runs the same trees backwards.
TEST(PatOracle, FiveNodes) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 40);
  const std::vector<int> ranks = rank_range(5, 0, 8);
  for (const bool scatter : {false, true}) {
    const Put pat =
        put(cluster, ranks, [&](LoadSheet& sheet, const CommGroup& group) { put_pat(sheet, group, 1000, scatter); });
    ASSERT_EQ(pat.loads.size(), 10u);
    for (const auto& [name, bytes] : pat.loads) EXPECT_EQ(bytes, 4000) << name;
    for (const MemberTraffic& member : pat.transfer.members) EXPECT_EQ(member.received, 4000);
  }
}

// A ring of unequal parts, one node: into a member goes everything but its own part.
TEST(RingOracle, UnequalParts) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 8);
  const std::vector<std::int64_t> parts = {100, 0, 7, 393};  // 500 in all
  MemberBytesTable table(1);
  for (const std::int64_t part : parts) table[0].push_back(500 - part);
  const Put ring =
      put(cluster, rank_range(4), [&](LoadSheet& sheet, const CommGroup& group) { put_ring(sheet, group, table); });
  const Put backwards = put(cluster, rank_range(4),
                            [&](LoadSheet& sheet, const CommGroup& group) { put_ring(sheet, group, table, -1, true); });
  for (int i = 0; i < 4; ++i) {
    const std::int64_t part = parts[static_cast<std::size_t>(i)];
    EXPECT_EQ(ring.loads.at(gpu(0, i, "<")), 500 - part);
    EXPECT_EQ(ring.loads.at(gpu(0, (i + 3) % 4, ">")), 500 - part);
    EXPECT_EQ(backwards.loads.at(gpu(0, i, ">")), 500 - part);
  }
}

}  // namespace
}  // namespace longhaul
