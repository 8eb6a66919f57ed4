// Properties of routes on random topologies.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/cluster/cluster_graph.h"
#include "tests/property/cluster/any_topology.h"

namespace longhaul {
namespace {

const Link& link_of(const Cluster& cluster, LinkId id) { return cluster.links()[static_cast<std::size_t>(id)]; }

// A walk in the cluster's graph from one GPU to the other: between the links of the route only edges that are none.
bool is_walk(const Cluster& cluster, const Route& route, int from, int to) {
  const ClusterGraph whole = make_cluster_graph(cluster);
  const auto reach = [&](std::set<std::size_t> vertices) {
    std::vector<std::size_t> open(vertices.begin(), vertices.end());
    while (!open.empty()) {
      const std::size_t vertex = open.back();
      open.pop_back();
      for (const auto edge : boost::make_iterator_range(boost::out_edges(vertex, whole.graph))) {
        if (whole.graph[edge].link >= 0) continue;
        if (vertices.insert(boost::target(edge, whole.graph)).second) open.push_back(boost::target(edge, whole.graph));
      }
    }
    return vertices;
  };
  std::set<std::size_t> at = reach({whole.gpus[static_cast<std::size_t>(from)]});
  for (const LinkId id : route) {
    std::set<std::size_t> next;
    for (const std::size_t vertex : at) {
      for (const auto edge : boost::make_iterator_range(boost::out_edges(vertex, whole.graph))) {
        if (whole.graph[edge].link == id) next.insert(boost::target(edge, whole.graph));
      }
    }
    at = reach(next);
  }
  return at.count(whole.gpus[static_cast<std::size_t>(to)]) == 1;
}

// No link twice, none down; links of the source's node before the network, of the target's after it.
void check_route(const Cluster& cluster, const Route& route, int from, int to) {
  RC_ASSERT(route.empty() == (from == to));
  RC_ASSERT(std::set<LinkId>(route.begin(), route.end()).size() == route.size());
  int nics_out = 0;
  int nics_in = 0;
  for (const LinkId id : route) {
    const Link& link = link_of(cluster, id);
    RC_ASSERT(!link.down);
    RC_ASSERT(link.bandwidth.value > 0);
    const bool nic = link.name.find(".nic") != std::string::npos;
    nics_out += nic && link.name.back() == '>';
    nics_in += nic && link.name.back() == '<';
  }
  RC_ASSERT(nics_out == nics_in);
  RC_ASSERT(nics_out <= 1);
  RC_ASSERT(is_walk(cluster, route, from, to));
}

RC_GTEST_PROP(Routes, AreWalksWithoutALinkTwice, ()) {
  const Topology topology = any_topology();
  const int nodes = *rc::gen::inRange(1, 14);
  const Cluster cluster = *make_cluster(topology, nodes * topology.gpus_per_node);
  const int from = *rc::gen::inRange(0, cluster.gpus());
  const int to = *rc::gen::inRange(0, cluster.gpus());
  const Route route = cluster.route(from, to);
  check_route(cluster, route, from, to);
  RC_ASSERT(route == Cluster(topology, cluster.gpus()).route(from, to));  // the same in every build
  const bool network = std::any_of(route.begin(), route.end(),
                                   [&](LinkId id) { return link_of(cluster, id).scope == LinkScope::kInterNode; });
  RC_ASSERT(network == (cluster.domain_of(from) != cluster.domain_of(to)));
}

// With links down: still walks, and those that no link down touches are as before.
RC_GTEST_PROP(Routes, GoAroundLinksThatAreDown, ()) {
  Topology topology = any_topology();
  const int nodes = *rc::gen::inRange(2, 9);
  const Cluster whole = *make_cluster(topology, nodes * topology.gpus_per_node);
  std::set<std::string> down;
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
    const auto id = *rc::gen::inRange<LinkId>(0, static_cast<LinkId>(whole.links().size()));
    WhatIf what_if;
    what_if.links = link_of(whole, id).name;
    what_if.down = true;
    topology.what_ifs.push_back(what_if);
    down.insert(what_if.links);
  }
  const auto cluster = make_cluster(topology, whole.gpus());
  RC_TAG(cluster.has_value() ? "a way is left" : "cut off");
  if (!cluster) {
    // Then some pair indeed has no way: a cluster without the check finds it.
    RC_ASSERT(cluster.error()[0].message.find("leave no way from rank") != std::string::npos);
    return;
  }
  for (int from = 0; from < cluster->gpus(); ++from) {
    const int to = (from * 7 + 3) % cluster->gpus();
    const Route route = cluster->route(from, to);
    check_route(*cluster, route, from, to);
    if (cluster->links().size() != whole.links().size()) continue;  // a what-if brought a level's links in
    const Route before = whole.route(from, to);
    const bool hit =
        std::any_of(before.begin(), before.end(), [&](LinkId id) { return down.count(link_of(whole, id).name) > 0; });
    if (!hit) RC_ASSERT(route == before);
  }
  // Every pair has a way, not only those that make_cluster tried.
  for (int from = 0; from < cluster->gpus(); ++from) {
    for (int to = 0; to < cluster->gpus(); ++to) RC_ASSERT(cluster->find_route(from, to).has_value());
  }
}

// Moving both ends by whole pods and domains moves the links and changes nothing else (spread: nothing hangs on ranks).
RC_GTEST_PROP(Routes, AreTheSameEverywhere, ()) {
  Topology topology = any_topology();
  topology.routing = Routing::kSpread;
  const int domain_nodes = topology.domain_gpus() / topology.gpus_per_node;
  const int shift_nodes = topology.nodes_per_leaf * std::max(1, topology.leaves_per_pod) * domain_nodes;
  const int shift = shift_nodes * topology.gpus_per_node;
  const Cluster cluster = *make_cluster(topology, 3 * shift);
  const int from = *rc::gen::inRange(0, 2 * shift);
  const int to = *rc::gen::inRange(0, 2 * shift);
  const Route here = cluster.route(from, to);
  const Route there = cluster.route(from + shift, to + shift);
  RC_ASSERT(here.size() == there.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    const Link& a = link_of(cluster, here[i]);
    const Link& b = link_of(cluster, there[i]);
    RC_ASSERT(a.link_class == b.link_class);
    RC_ASSERT(a.name.substr(a.name.find_first_of(".><")) == b.name.substr(b.name.find_first_of(".><")));
  }
}

// An all-to-all of equal messages leaves every node, leaf and pod over as many bytes as it enters it, by class.
RC_GTEST_PROP(Routes, BringInWhatTheyTakeOut, ()) {
  const Topology topology = any_topology();
  const int nodes = *rc::gen::inRange(1, 9);
  const Cluster cluster = *make_cluster(topology, nodes * topology.gpus_per_node);
  std::map<std::string, std::pair<int, int>> loads;  // by part and class: out, in
  for (int from = 0; from < cluster.gpus(); ++from) {
    for (int to = 0; to < cluster.gpus(); ++to) {
      for (const LinkId id : cluster.route(from, to)) {
        const Link& link = link_of(cluster, id);
        if (link.name.back() != '>' && link.name.back() != '<') continue;  // pairs
        const std::string part = link.name.substr(0, link.name.find_first_of(".><"));
        auto& [out, in] = loads[part + " " + cluster.link_classes()[link.link_class].name];
        ++(link.name.back() == '>' ? out : in);
      }
    }
  }
  for (const auto& [part, load] : loads) RC_ASSERT(load.first == load.second);
}

// What `spread` gives a level as one link, `hash` gives it as several: the rates of a level sum to the same (NICs
// exactly so; uplinks where the spines divide them).
RC_GTEST_PROP(Routing, SpreadLinksSumTheHashedOnes, ()) {
  Topology topology = any_topology();
  topology.oversubscription = 2;
  const int nodes = *rc::gen::inRange(2, 9);
  std::map<std::string, double> sums[2];
  for (const Routing routing : {Routing::kSpread, Routing::kHash}) {
    topology.routing = routing;
    const Cluster cluster = *make_cluster(topology, nodes * topology.gpus_per_node);
    for (const Link& link : cluster.links()) {
      const std::string part = link.name.substr(0, link.name.find_first_of(".><"));
      const std::string level = cluster.link_classes()[link.link_class].name;
      if (level == "spine" && topology.spine_oversubscription == 1) continue;  // `spread` has none
      sums[static_cast<int>(routing)][part + " " + level + " " + link.name.back()] += link.bandwidth.value;
    }
  }
  for (const auto& [part, sum] : sums[0]) RC_ASSERT(std::abs(sums[1][part] - sum) <= 1e-9 * sum);
  RC_ASSERT(sums[0].size() == sums[1].size());
}

// Scaling a class of links scales what its links carry, and moves no route.
RC_GTEST_PROP(WhatIfs, ScalingMovesNoRoute, ()) {
  Topology topology = any_topology();
  const int nodes = *rc::gen::inRange(1, 9);
  const Cluster before = *make_cluster(topology, nodes * topology.gpus_per_node);
  const auto id = *rc::gen::inRange<LinkId>(0, static_cast<LinkId>(before.links().size()));
  WhatIf what_if;
  what_if.links = link_of(before, id).name;
  what_if.scale_bandwidth = *rc::gen::element(0.25, 0.5, 2.0);
  what_if.scale_latency = *rc::gen::element(0.5, 1.0, 4.0);
  topology.what_ifs = {what_if};
  const Cluster after = *make_cluster(topology, before.gpus());
  RC_ASSERT(after.links().size() >= before.links().size());
  for (LinkId link = 0; link < before.first_link_of_leaf(0); ++link) {
    const double factor = link == id ? what_if.scale_bandwidth : 1;
    RC_ASSERT(link_of(after, link).bandwidth.value == link_of(before, link).bandwidth.value * factor);
    const double latency = link == id ? what_if.scale_latency : 1;
    RC_ASSERT(link_of(after, link).latency == Time::from_seconds(link_of(before, link).latency.seconds() * latency));
  }
  if (after.links().size() != before.links().size()) return;
  const int from = *rc::gen::inRange(0, before.gpus());
  const int to = *rc::gen::inRange(0, before.gpus());
  RC_ASSERT(after.route(from, to) == before.route(from, to));
}

}  // namespace
}  // namespace longhaul
