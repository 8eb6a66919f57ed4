// Random topologies of every shape: NVSwitch in one level or two, pairs, shared and several NICs, PCIe, rails, fat
// trees and single switches, two and three levels, oversubscription, both ways of routing.
#pragma once

#include <rapidcheck.h>

#include <vector>

#include "sim/cluster/cluster.h"

namespace longhaul {

inline Topology any_topology() {
  static const Topology rails = *read_topology("dgx-a100-hdr", LONGHAUL_SOURCE_ROOT);
  static const Topology shared = *read_topology("a100-40gb-2x4", LONGHAUL_SOURCE_ROOT);
  Topology topology = *rc::gen::element(rails, shared);
  topology.nodes.reset();
  topology.gpus_per_node = *rc::gen::element(1, 2, 3, 4, 6);
  std::vector<int> counts = {2 * topology.gpus_per_node, 3 * topology.gpus_per_node};
  for (int nics = 1; nics <= topology.gpus_per_node; ++nics) {
    if (topology.gpus_per_node % nics == 0) counts.push_back(nics);
  }
  topology.nics_per_node = *rc::gen::elementOf(counts);
  topology.node_fabric = *rc::gen::element(NodeFabric::kNvSwitch, NodeFabric::kPairs);
  if (topology.node_fabric == NodeFabric::kNvSwitch) {
    topology.gpus_per_domain = topology.gpus_per_node * *rc::gen::inRange(1, 4);
    if (topology.gpus_per_domain > topology.gpus_per_node && *rc::gen::arbitrary<bool>()) {
      topology.nvswitch = topology.nvlink;
      topology.nvswitch->name = "nvswitch";
    }
  }
  topology.network_fabric =
      *rc::gen::element(NetworkFabric::kRails, NetworkFabric::kFatTree, NetworkFabric::kSingleSwitch);
  topology.nodes_per_leaf = *rc::gen::inRange(1, 4);
  topology.oversubscription = *rc::gen::element(1.0, 2.0, 3.0);
  topology.leaves_per_pod = *rc::gen::inRange(0, 3);
  topology.spine_oversubscription = topology.leaves_per_pod > 0 ? *rc::gen::element(1.0, 2.0) : 1.0;
  topology.routing = *rc::gen::element(Routing::kSpread, Routing::kHash);
  if (*rc::gen::arbitrary<bool>()) topology.spines = *rc::gen::inRange(1, 4);
  if (*rc::gen::arbitrary<bool>()) topology.pcie.reset();
  return topology;
}

}  // namespace longhaul
