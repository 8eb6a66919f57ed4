// The minimum cut by trees equals the maximum flow, on random clusters with random what-ifs.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "sim/cluster/bisection.h"
#include "tests/property/cluster/any_topology.h"

namespace longhaul {
namespace {

RC_GTEST_PROP(Bisection, OfTreesIsTheMaximumFlow, ()) {
  Topology topology = any_topology();
  const int nodes = *rc::gen::inRange(1, 11);
  const int gpus = nodes * topology.gpus_per_node;
  const Cluster plain = *make_cluster(topology, gpus);
  if (topology.routing == Routing::kSpread) {
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      WhatIf what_if;
      what_if.links = plain.links()[*rc::gen::inRange<std::size_t>(0, plain.links().size())].name;
      what_if.scale_bandwidth = *rc::gen::element(0.1, 0.5, 3.0);
      topology.what_ifs.push_back(what_if);
    }
  }
  const Cluster cluster = *make_cluster(topology, gpus);
  const int first = *rc::gen::inRange(0, nodes) * topology.gpus_per_node;
  const bool network = *rc::gen::arbitrary<bool>();
  if (gpus - first < 2) return;
  const double by_flow = bisection_by_flow(cluster, first, gpus, network).value;
  const double by_trees = bisection(cluster, first, gpus, network).value;
  // The flow counts whole bytes a second, cut off at each link.
  RC_ASSERT(std::abs(by_flow - by_trees) <= static_cast<double>(cluster.links().size()));
}

}  // namespace
}  // namespace longhaul
