// What every pair of a group's ranks puts on links when each rank sends the same to each other one, without visiting
// the pairs: where routes follow patterns (Cluster::routes_by_pattern), the load of a link of a node, leaf or pod
// follows from how many members sit at each place of the nodes that stand in each pattern to it.
//
// Loads and member traffic equal the sums over pairs exactly. Time: O(nodes x patterns x GPUs of a node squared +
// (groups of nodes)^2 x GPUs of a node), where a group of nodes shares leaf, pod and NVLink domain.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/load_sheet.h"
#include "sim/network/wire_latency.h"

namespace longhaul {

class AllPairs {
 public:
  // Asserts that routes follow patterns and that the ranks are in the cluster. `cluster` must outlive this.
  AllPairs(const Cluster& cluster, std::span<const int> ranks);

  std::span<const int> ranks() const { return ranks_; }  // sorted
  int domains() const { return static_cast<int>(members_of_domain_.size()); }
  int largest_domain() const;
  int smallest_domain() const;

  // Puts `bytes` from every member to each other one; the sheet is begun with ranks().
  void put(LoadSheet& sheet, std::int64_t bytes) const;
  // The longest WireLatency::message of a pair, us; there must be two ranks. Visits all pairs unless links of a class
  // are alike.
  double longest_wire(const WireLatency& wires) const;

 private:
  struct Node {
    int node = 0;
    int first = 0;  // of its members in ranks_
    int count = 0;
    int group = 0;
  };
  struct Group {          // nodes of one leaf, pod and NVLink domain
    int node = 0;         // one of them
    int nodes = 0;        // that have members
    std::vector<int> at;  // members by place in a node
  };
  void add_nodes();
  std::vector<int> counts_of(std::size_t group) const;
  template <typename Visit>
  void for_each_place(const Visit& visit) const;

  const Cluster* cluster_;
  std::vector<int> ranks_;
  std::vector<Node> nodes_;
  std::vector<Group> groups_;
  std::vector<int> members_of_domain_;  // of those that have members, in order
};

}  // namespace longhaul
