#include <algorithm>
#include <boost/graph/push_relabel_max_flow.hpp>
#include <cstdint>

#include "sim/cluster/bisection.h"
#include "sim/cluster/cluster_graph.h"

namespace longhaul {
namespace {

// Bytes a second as integers: exact sums, and no rate comes near.
constexpr std::int64_t kEndless = std::int64_t{1} << 50;

struct FlowEdge;
using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
struct FlowEdge {
  std::int64_t capacity = 0;
  std::int64_t residual = 0;
  Traits::edge_descriptor reverse;
};
using FlowGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, FlowEdge>;

void add_flow_edge(FlowGraph& graph, std::size_t from, std::size_t to, std::int64_t capacity) {
  const auto there = boost::add_edge(from, to, FlowEdge{capacity, 0, {}}, graph).first;
  const auto back = boost::add_edge(to, from, FlowEdge{0, 0, {}}, graph).first;
  graph[there].reverse = back;
  graph[back].reverse = there;
}

}  // namespace

BytesPerSecond bisection_by_flow(const Cluster& cluster, int first, int last, bool with_network) {
  const ClusterGraph whole = make_cluster_graph(cluster);
  const std::size_t vertices = boost::num_vertices(whole.graph);
  FlowGraph graph(vertices + 2);
  std::vector<bool> takes_part(vertices);
  for (std::size_t vertex = 0; vertex < vertices; ++vertex) {
    takes_part[vertex] = whole.graph[vertex].kind != VertexKind::kGpu;
  }
  const int middle = middle_rank(cluster, first, last);
  for (int rank = first; rank < last; ++rank) {
    const std::size_t gpu = whole.gpus[static_cast<std::size_t>(rank)];
    takes_part[gpu] = true;
    if (rank < middle) add_flow_edge(graph, vertices, gpu, kEndless);
    if (rank >= middle) add_flow_edge(graph, gpu, vertices + 1, kEndless);
  }
  for (std::size_t from = 0; from < vertices; ++from) {
    for (const auto edge : boost::make_iterator_range(boost::out_edges(from, whole.graph))) {
      const std::size_t to = boost::target(edge, whole.graph);
      if (!takes_part[from] || !takes_part[to]) continue;
      const LinkId id = whole.graph[edge].link;
      const Link* link = id < 0 ? nullptr : &cluster.links()[static_cast<std::size_t>(id)];
      const bool network = link == nullptr || link->scope == LinkScope::kInterNode;
      if (network && !with_network) continue;
      const double rate = link == nullptr || link->down ? 0 : link->bandwidth.value;
      add_flow_edge(graph, from, to, link == nullptr ? kEndless : static_cast<std::int64_t>(rate));
    }
  }
  const auto flow = boost::push_relabel_max_flow(
      graph, vertices, vertices + 1, boost::get(&FlowEdge::capacity, graph), boost::get(&FlowEdge::residual, graph),
      boost::get(&FlowEdge::reverse, graph), boost::get(boost::vertex_index, graph));
  return {static_cast<double>(flow)};
}

}  // namespace longhaul
