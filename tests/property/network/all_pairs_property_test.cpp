// Collectives::all_to_all from counts of members is the exchange of all its pairs, byte for byte and picosecond for
// picosecond, on random groups of clusters of every kind: where routes follow patterns and where they do not.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/network/collectives.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

Topology shipped(const std::string& name) { return *read_topology(name, LONGHAUL_SOURCE_ROOT); }

// Three levels: pods of four nodes, leaves of two.
Topology pods(Routing routing) {
  Topology topology = shipped("dgx-h100-ndr");
  topology.network_fabric = NetworkFabric::kFatTree;
  topology.nodes_per_leaf = 2;
  topology.leaves_per_pod = 2;
  topology.oversubscription = 2;
  topology.spine_oversubscription = 2;
  topology.routing = routing;
  return topology;
}

Topology with_what_if(Topology topology, const std::string& links, bool down) {
  WhatIf change;
  change.links = links;
  change.down = down;
  if (!down) change.scale_latency = 5;
  topology.what_ifs.push_back(change);
  return topology;
}

struct Case {
  Cluster cluster;
  bool by_pattern;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    Topology rack = shipped("gb200-nvl72");
    rack.nodes_per_leaf = 5;  // leaves that cut NVLink domains
    rack.oversubscription = 3;
    Topology slow_wires = pods(Routing::kSpread);
    slow_wires.nic.latency = Time::from_us(9);
    return std::vector<Case>{{*make_cluster(shipped("dgx-h200-ndr"), 64), true},
                             {*make_cluster(pods(Routing::kSpread), 112), true},
                             {*make_cluster(rack, 144), true},
                             {*make_cluster(shipped("a800-4x8"), 32), true},
                             {*make_cluster(shipped("dgx-h100-ndr"), 5), true},
                             {*make_cluster(slow_wires, 96), true},
                             {*make_cluster(with_what_if(pods(Routing::kSpread), "n1.nic3>", false), 80), true},
                             {*make_cluster(pods(Routing::kHash), 80), false},
                             {*make_cluster(with_what_if(shipped("dgx-h100-ndr"), "n1.nic3", true), 48), false}};
  }();
  return all;
}

std::vector<int> any_group(int gpus) {
  const int percent = *rc::gen::element(5, 30, 70, 100);
  std::vector<int> ranks;
  for (int rank = 0; rank < gpus; ++rank) {
    if (*rc::gen::resize(100, rc::gen::inRange(0, 100)) < percent) ranks.push_back(rank);
  }
  if (ranks.empty()) ranks.push_back(gpus - 1);
  std::rotate(ranks.begin(), ranks.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(ranks)), ranks.end());
  return ranks;
}

RC_GTEST_PROP(AllPairs, EqualTheExchangeOfEveryPair, ()) {
  const Case& of = cases()[*rc::gen::inRange<std::size_t>(0, cases().size())];
  RC_ASSERT(of.cluster.routes_by_pattern() == of.by_pattern);
  Collectives collectives(of.cluster);
  const std::vector<int> ranks = any_group(of.cluster.gpus());
  const Bytes bytes{*rc::gen::element<std::int64_t>(1, 777, 16'384, 1'234'567, std::int64_t{1} << 32)};
  const Transfer quick = collectives.all_to_all(ranks, bytes);
  const std::vector<Bytes> messages(ranks.size() * ranks.size(), bytes);
  const Transfer pairs = collectives.all_to_all_v(ranks, messages);
  RC_ASSERT(quick.loads == pairs.loads);
  RC_ASSERT(quick.latency == pairs.latency && quick.byte_seconds == pairs.byte_seconds && quick.alone == pairs.alone);
  RC_ASSERT(quick.protocol == pairs.protocol && quick.channels == pairs.channels);
  RC_ASSERT(quick.intra_node_bytes == pairs.intra_node_bytes && quick.inter_node_bytes == pairs.inter_node_bytes);
  RC_ASSERT(quick.members.size() == pairs.members.size());
  for (std::size_t i = 0; i < quick.members.size(); ++i) {
    const MemberTraffic& one = quick.members[i];
    const MemberTraffic& other = pairs.members[i];
    RC_ASSERT(one.rank == other.rank && one.received == other.received);
    RC_ASSERT(one.sent_intra_node == other.sent_intra_node && one.sent_inter_node == other.sent_inter_node);
  }
}

}  // namespace
}  // namespace longhaul
