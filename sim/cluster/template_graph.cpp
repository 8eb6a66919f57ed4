#include "sim/cluster/template_graph.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <optional>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Hop costs: rails first. Changing GPU over NVLink (2) is cheaper than passing the spine (2 x 16).
constexpr std::int64_t kNvLinkCost = 1;
constexpr std::int64_t kPcieCost = 2;
constexpr std::int64_t kNicCost = 8;
constexpr std::int64_t kSpineCost = 16;
// Costs are multiplied by this and the number of the edge is added, so that equal paths are told apart the same way by
// every library version. A path has few edges, and a two-node graph has far fewer than 2^20 / 8.
constexpr std::int64_t kTieBreak = 1 << 20;

struct EdgeProperties {
  std::int64_t weight = 0;
  int node = -1;   // 0 or 1: a link of that node
  int leaf = -1;   // 0 or 1: a link of that leaf group
  int index = -1;  // within its owner; -1: no link, it never limits
};

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, EdgeProperties>;
using Vertex = boost::graph_traits<Graph>::vertex_descriptor;
using Edge = boost::graph_traits<Graph>::edge_descriptor;

class TwoNodes {
 public:
  TwoNodes(const Topology& topology, bool same_leaf) : topology_(topology), layout_(topology), same_leaf_(same_leaf) {
    for (int node = 0; node < 2; ++node) add_node(node);
    add_network();
  }

  // Links from GPU `from` of node 0 to every GPU of both nodes: predecessor edges of the shortest-path tree.
  std::vector<std::optional<Edge>> tree(int from) const {
    std::vector<Vertex> parents(boost::num_vertices(graph_));
    std::vector<std::int64_t> distances(boost::num_vertices(graph_));
    boost::dijkstra_shortest_paths(graph_, gpu_vertices_[0][static_cast<std::size_t>(from)],
                                   boost::predecessor_map(parents.data())
                                       .distance_map(distances.data())
                                       .weight_map(boost::get(&EdgeProperties::weight, graph_)));
    std::vector<std::optional<Edge>> edges(parents.size());
    for (std::size_t vertex = 0; vertex < parents.size(); ++vertex) {
      if (parents[vertex] == vertex) continue;
      edges[vertex] = boost::edge(parents[vertex], vertex, graph_).first;
    }
    return edges;
  }

  void append_path(const std::vector<std::optional<Edge>>& tree, int node, int gpu,
                   std::vector<TemplateLink>& links) const {
    const std::size_t start = links.size();
    Vertex vertex = gpu_vertices_[static_cast<std::size_t>(node)][static_cast<std::size_t>(gpu)];
    while (tree[vertex]) {
      const EdgeProperties& edge = graph_[*tree[vertex]];
      if (edge.index >= 0) links.push_back({owner(edge), edge.index});
      vertex = boost::source(*tree[vertex], graph_);
    }
    std::reverse(links.begin() + static_cast<std::ptrdiff_t>(start), links.end());
  }

 private:
  static LinkOwner owner(const EdgeProperties& edge) {
    if (edge.node >= 0) return edge.node == 0 ? LinkOwner::kSourceNode : LinkOwner::kTargetNode;
    return edge.leaf == 0 ? LinkOwner::kSourceLeaf : LinkOwner::kTargetLeaf;
  }

  void add_edge(Vertex from, Vertex to, std::int64_t cost, EdgeProperties properties) {
    properties.weight = cost * kTieBreak + static_cast<std::int64_t>(boost::num_edges(graph_));
    boost::add_edge(from, to, properties, graph_);
  }

  void add_node(int node) {
    std::vector<Vertex>& gpus = gpu_vertices_.emplace_back();
    std::vector<Vertex>& nics = nic_vertices_.emplace_back();
    for (int gpu = 0; gpu < topology_.gpus_per_node; ++gpu) gpus.push_back(boost::add_vertex(graph_));
    for (int nic = 0; nic < topology_.nics_per_node; ++nic) nics.push_back(boost::add_vertex(graph_));
    const auto link = [&](int index) { return EdgeProperties{0, node, -1, index}; };
    if (topology_.node_fabric == NodeFabric::kNvSwitch) {
      const Vertex nvswitch = boost::add_vertex(graph_);
      for (int gpu = 0; gpu < topology_.gpus_per_node; ++gpu) {
        const Vertex vertex = gpus[static_cast<std::size_t>(gpu)];
        add_edge(vertex, nvswitch, kNvLinkCost, link(layout_.nvlink_up(gpu)));
        add_edge(nvswitch, vertex, kNvLinkCost, link(layout_.nvlink_down(gpu)));
      }
    } else {
      for (int gpu = 0; gpu < topology_.gpus_per_node; ++gpu) {
        for (int peer = 0; peer < topology_.gpus_per_node; ++peer) {
          if (gpu == peer) continue;
          add_edge(gpus[static_cast<std::size_t>(gpu)], gpus[static_cast<std::size_t>(peer)], kNvLinkCost,
                   link(layout_.nvlink(gpu, peer)));
        }
      }
    }
    for (int gpu = 0; gpu < topology_.gpus_per_node; ++gpu) {
      const int nic = gpu * topology_.nics_per_node / topology_.gpus_per_node;
      const Vertex from = gpus[static_cast<std::size_t>(gpu)];
      const Vertex to = nics[static_cast<std::size_t>(nic)];
      add_edge(from, to, kPcieCost, topology_.pcie ? link(layout_.pcie_out(gpu)) : EdgeProperties{});
      add_edge(to, from, kPcieCost, topology_.pcie ? link(layout_.pcie_in(gpu)) : EdgeProperties{});
    }
  }

  void add_network() {
    const bool rails = topology_.network_fabric == NetworkFabric::kRails;
    const int rail_count = rails ? topology_.nics_per_node : 1;
    const int groups = same_leaf_ ? 1 : 2;
    const Vertex spine = boost::add_vertex(graph_);
    std::vector<Vertex> leaves;
    for (int group = 0; group < groups; ++group) {
      for (int rail = 0; rail < rail_count; ++rail) {
        leaves.push_back(boost::add_vertex(graph_));
        const bool limits = leaves_limit(topology_);
        add_edge(leaves.back(), spine, kSpineCost, {0, -1, group, limits ? 2 * rail : -1});
        add_edge(spine, leaves.back(), kSpineCost, {0, -1, group, limits ? 2 * rail + 1 : -1});
      }
    }
    for (int node = 0; node < 2; ++node) {
      for (int nic = 0; nic < topology_.nics_per_node; ++nic) {
        const Vertex vertex = nic_vertices_[static_cast<std::size_t>(node)][static_cast<std::size_t>(nic)];
        const int leaf = (same_leaf_ ? 0 : node) * rail_count + (rails ? nic : 0);
        const Vertex to = leaves[static_cast<std::size_t>(leaf)];
        add_edge(vertex, to, kNicCost, {0, node, -1, layout_.nic_out(nic)});
        add_edge(to, vertex, kNicCost, {0, node, -1, layout_.nic_in(nic)});
      }
    }
  }

  const Topology& topology_;
  NodeLinkLayout layout_;
  bool same_leaf_;
  Graph graph_;
  std::vector<std::vector<Vertex>> gpu_vertices_;
  std::vector<std::vector<Vertex>> nic_vertices_;
};

}  // namespace

NodeLinkLayout::NodeLinkLayout(const Topology& topology) : gpus(topology.gpus_per_node) {
  first_pcie = topology.node_fabric == NodeFabric::kNvSwitch ? 2 * gpus : gpus * (gpus - 1);
  first_nic = first_pcie + (topology.pcie ? 2 * gpus : 0);
  links = first_nic + 2 * topology.nics_per_node;
}

int NodeLinkLayout::nvlink(int gpu, int peer) const { return gpu * (gpus - 1) + (peer < gpu ? peer : peer - 1); }

bool leaves_limit(const Topology& topology) {
  return topology.network_fabric == NetworkFabric::kRails && topology.oversubscription > 1;
}

RouteTemplates make_route_templates(const Topology& topology) {
  const TwoNodes near(topology, true);
  const TwoNodes far(topology, false);
  RouteTemplates templates;
  templates.first.push_back(0);
  for (int pattern = 0; pattern < kRoutePatterns; ++pattern) {
    const bool other_leaf = pattern == static_cast<int>(RoutePattern::kOtherLeaf);
    const TwoNodes& graph = other_leaf ? far : near;
    const int target_node = pattern == static_cast<int>(RoutePattern::kSameNode) ? 0 : 1;
    for (int from = 0; from < topology.gpus_per_node; ++from) {
      const auto tree = graph.tree(from);
      for (int to = 0; to < topology.gpus_per_node; ++to) {
        graph.append_path(tree, target_node, to, templates.links);
        templates.first.push_back(static_cast<std::int32_t>(templates.links.size()));
      }
    }
  }
  return templates;
}

}  // namespace longhaul
