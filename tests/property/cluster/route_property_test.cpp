// Properties of routes on random topologies.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "sim/cluster/cluster.h"

namespace longhaul {
namespace {

Topology any_topology() {
  static const Topology rails = *read_topology("dgx-a100-hdr", LONGHAUL_SOURCE_ROOT);
  static const Topology shared = *read_topology("a100-40gb-2x4", LONGHAUL_SOURCE_ROOT);
  Topology topology = *rc::gen::element(rails, shared);
  topology.nodes.reset();
  topology.gpus_per_node = *rc::gen::element(1, 2, 3, 4, 6, 8);
  std::vector<int> divisors;
  for (int nics = 1; nics <= topology.gpus_per_node; ++nics) {
    if (topology.gpus_per_node % nics == 0) divisors.push_back(nics);
  }
  topology.nics_per_node = *rc::gen::elementOf(divisors);
  topology.node_fabric = *rc::gen::element(NodeFabric::kNvSwitch, NodeFabric::kPairs);
  topology.nodes_per_leaf = *rc::gen::inRange(1, 5);
  topology.oversubscription = *rc::gen::element(1.0, 2.0);
  if (*rc::gen::inRange(0, 2) == 0) topology.pcie.reset();
  return topology;
}

// "n3.g1.nvl>": where a link starts or ends, as text before the direction.
bool ends_with(const std::string& text, char last) { return text.back() == last; }

RC_GTEST_PROP(Routes, AreSimpleAndStayWhereTheyShould, ()) {
  const Topology topology = any_topology();
  const int nodes = *rc::gen::inRange(1, 9);
  const Cluster cluster = *make_cluster(topology, nodes * topology.gpus_per_node);
  const int from = *rc::gen::inRange(0, cluster.gpus());
  const int to = *rc::gen::inRange(0, cluster.gpus());
  const Route route = cluster.route(from, to);
  RC_ASSERT(route.empty() == (from == to));
  RC_ASSERT(route == cluster.route(from, to));
  Route sorted = route;
  std::sort(sorted.begin(), sorted.end());
  RC_ASSERT(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
  int nics_out = 0;
  int nics_in = 0;
  for (const LinkId id : route) {
    RC_ASSERT(id >= 0 && id < static_cast<LinkId>(cluster.links().size()));
    const Link& link = cluster.links()[static_cast<std::size_t>(id)];
    RC_ASSERT(!link.name.empty() && link.bandwidth.value > 0);
    const bool nic = link.name.find(".nic") != std::string::npos;
    nics_out += nic && ends_with(link.name, '>');
    nics_in += nic && ends_with(link.name, '<');
    // Links of a node are of the source's before the network and of the target's after it.
    const std::string source = "n" + std::to_string(cluster.node_of(from)) + ".";
    const std::string target = "n" + std::to_string(cluster.node_of(to)) + ".";
    if (link.name[0] == 'n') RC_ASSERT(link.name.starts_with(nics_in == 0 ? source : target));
  }
  const int crossings = cluster.node_of(from) == cluster.node_of(to) ? 0 : 1;
  RC_ASSERT(nics_out == crossings);
  RC_ASSERT(nics_in == crossings);
}

// Moving both ends by whole leaf groups moves the links and changes nothing else.
RC_GTEST_PROP(Routes, AreTheSameEverywhere, ()) {
  const Topology topology = any_topology();
  const int shift_nodes = topology.nodes_per_leaf;
  const int nodes = 3 * shift_nodes;
  const Cluster cluster = *make_cluster(topology, nodes * topology.gpus_per_node);
  const int from = *rc::gen::inRange(0, 2 * shift_nodes * topology.gpus_per_node);
  const int to = *rc::gen::inRange(0, 2 * shift_nodes * topology.gpus_per_node);
  const int shift = shift_nodes * topology.gpus_per_node;
  const Route here = cluster.route(from, to);
  const Route there = cluster.route(from + shift, to + shift);
  RC_ASSERT(here.size() == there.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    const Link& a = cluster.links()[static_cast<std::size_t>(here[i])];
    const Link& b = cluster.links()[static_cast<std::size_t>(there[i])];
    RC_ASSERT(a.link_class == b.link_class);
    RC_ASSERT(a.name.substr(a.name.find('.')) == b.name.substr(b.name.find('.')));
  }
}

}  // namespace
}  // namespace longhaul
