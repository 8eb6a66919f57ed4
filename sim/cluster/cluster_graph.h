// A whole cluster as one Boost.Graph: every GPU, NVSwitch, PCIe switch, NIC, leaf, spine and core, and every link.
// For checks, cuts and pictures of small clusters; routes do not need it. Memory: O(links).
//
// A PCIe switch and a NIC are two vertices, one for each direction: nothing turns back in them. Edges that are no link
// (they cannot limit anything) have link -1.
#pragma once

#include <boost/graph/adjacency_list.hpp>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"

namespace longhaul {

struct ClusterVertex {
  VertexKind kind = VertexKind::kGpu;
  std::string name;  // "n0.g3", "n0.nic1>", "leaf0.r1", "pod0.s2", "s0.c1"
};

struct ClusterEdge {
  LinkId link = -1;
};

struct ClusterGraph {
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, ClusterVertex, ClusterEdge>;
  Graph graph;
  std::vector<Graph::vertex_descriptor> gpus;  // by rank
};

ClusterGraph make_cluster_graph(const Cluster& cluster);

}  // namespace longhaul
