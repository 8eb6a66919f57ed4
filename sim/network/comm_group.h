// The members of a communicator by NVLink domain, and how a buffer is cut among parts.
//
// Invariants: domains in the order of their first member, members of a domain in the order given, every member once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/nccl/model.h"

namespace longhaul {

struct CommGroup {
  std::vector<std::vector<int>> domains;  // ranks of each NVLink domain that has members
  int ranks = 0;
  int largest = 0;   // members of the domain that has most
  int smallest = 0;  // of the one that has fewest

  // What NCCL is told of it; `bytes` as nccl-tests counts them.
  NcclCall call(NcclCollective collective, std::int64_t bytes) const;
  // Member `slot` of a domain, counted round and round: channels begin at different members.
  int member(std::size_t domain, std::size_t slot) const { return domains[domain][slot % domains[domain].size()]; }
};

// Asserts that the ranks are in the cluster and that there is one at least. That no rank comes twice is checked where
// its traffic is written (LoadSheet).
CommGroup make_comm_group(const Cluster& cluster, std::span<const int> ranks);

// Part `index` of `parts` of `bytes`: parts differ by at most one byte and sum to it.
std::int64_t even_part(std::int64_t bytes, std::size_t parts, std::size_t index);

// The parent of `node` in the first of NCCL's two binary trees over `count` nodes (-1 for its root); the second tree is
// the first one mirrored (even count) or turned by one (odd count), so that whoever is inner in one is a leaf in the
// other. NCCL 2.28, graph/trees.cc: ncclGetBtree, ncclGetDtree.
int tree_parent(int node, int count);
int second_tree_parent(int node, int count);

}  // namespace longhaul
