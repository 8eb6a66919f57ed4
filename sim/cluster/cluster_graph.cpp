#include "sim/cluster/cluster_graph.h"

#include <fmt/format.h>

#include <map>

namespace longhaul {
namespace {

class Builder {
 public:
  Builder(const Cluster& cluster, ClusterGraph& result)
      : cluster_(cluster), node_(cluster.node_layout()), fabric_(cluster.fabric_layout()), result_(result) {}

  void build() {
    if (cluster_.topology().graph) return add_graph(*cluster_.topology().graph);
    for (int node = 0; node < cluster_.nodes(); ++node) add_node(node);
    for (int node = 0; node < cluster_.nodes(); ++node) add_uplinks(node);
  }

 private:
  using Vertex = ClusterGraph::Graph::vertex_descriptor;

  // One vertex a name, made when first asked for.
  Vertex vertex(VertexKind kind, const std::string& name) {
    const auto [entry, is_new] = vertices_.try_emplace(name, 0);
    if (is_new) entry->second = boost::add_vertex(ClusterVertex{kind, name}, result_.graph);
    return entry->second;
  }

  void edge(Vertex from, Vertex to, LinkId link = -1) { boost::add_edge(from, to, ClusterEdge{link}, result_.graph); }

  void add_graph(const GraphSpec& graph) {
    for (const GraphVertex& of : graph.vertices) boost::add_vertex(ClusterVertex{of.kind, of.name}, result_.graph);
    for (std::size_t link = 0; link < graph.links.size(); ++link) {
      edge(static_cast<Vertex>(graph.links[link].from), static_cast<Vertex>(graph.links[link].to),
           static_cast<LinkId>(link));
    }
    for (int rank = 0; rank < cluster_.gpus(); ++rank) {
      result_.gpus.push_back(static_cast<Vertex>(graph.gpus[static_cast<std::size_t>(rank)]));
    }
  }

  Vertex nvswitch_of(int node) {
    const int domain = cluster_.domain_of(node * node_.gpus);
    const bool levels = cluster_.topology().nvswitch.has_value();
    return vertex(VertexKind::kNvSwitch, levels ? fmt::format("n{}.nvs", node) : fmt::format("d{}.nvs", domain));
  }

  void add_node(int node) {
    const LinkId base = cluster_.first_link_of_node(node);
    std::vector<Vertex> gpus;
    for (int gpu = 0; gpu < node_.gpus; ++gpu) {
      gpus.push_back(vertex(VertexKind::kGpu, fmt::format("n{}.g{}", node, gpu)));
      if (node * node_.gpus + gpu < cluster_.gpus()) result_.gpus.push_back(gpus.back());
    }
    for (int gpu = 0; gpu < node_.gpus; ++gpu) {
      const Vertex from = gpus[static_cast<std::size_t>(gpu)];
      if (cluster_.topology().node_fabric == NodeFabric::kNvSwitch) {
        edge(from, nvswitch_of(node), base + node_.nvlink_up(gpu));
        edge(nvswitch_of(node), from, base + node_.nvlink_down(gpu));
      } else {
        for (int peer = 0; peer < node_.gpus; ++peer) {
          if (peer != gpu) edge(from, gpus[static_cast<std::size_t>(peer)], base + node_.nvlink(gpu, peer));
        }
      }
      add_pcie(node, gpu, from);
    }
    if (cluster_.topology().nvswitch) {
      const Vertex second =
          vertex(VertexKind::kNvSwitch, fmt::format("d{}.nvs", cluster_.domain_of(node * node_.gpus)));
      edge(nvswitch_of(node), second, base + node_.nvswitch_up());
      edge(second, nvswitch_of(node), base + node_.nvswitch_down());
    }
    add_nics(node);
  }

  void add_pcie(int node, int gpu, Vertex from) {
    const LinkId base = cluster_.first_link_of_node(node);
    const bool pcie = cluster_.topology().pcie.has_value();
    const int first = node_.nic_of(gpu, 0);
    const Vertex out = vertex(VertexKind::kPcieSwitch, fmt::format("n{}.pcie{}>", node, first));
    const Vertex in = vertex(VertexKind::kPcieSwitch, fmt::format("n{}.pcie{}<", node, first));
    edge(from, out, pcie ? base + node_.pcie_out(gpu) : -1);
    edge(in, from, pcie ? base + node_.pcie_in(gpu) : -1);
    if (gpu > 0 && node_.nic_of(gpu - 1, 0) == first) return;
    for (int port = 0; port < node_.ports; ++port) {
      edge(out, vertex(VertexKind::kNic, fmt::format("n{}.nic{}>", node, first + port)));
      edge(vertex(VertexKind::kNic, fmt::format("n{}.nic{}<", node, first + port)), in);
    }
  }

  Vertex leaf_vertex(int leaf, int rail) { return vertex(VertexKind::kLeaf, fmt::format("leaf{}.r{}", leaf, rail)); }

  void add_nics(int node) {
    const LinkId base = cluster_.first_link_of_node(node);
    for (int nic = 0; nic < node_.nics; ++nic) {
      const Vertex leaf = leaf_vertex(fabric_.leaf_of(node), fabric_.rails > 1 ? nic : 0);
      edge(vertex(VertexKind::kNic, fmt::format("n{}.nic{}>", node, nic)), leaf, base + node_.nic_out(nic));
      edge(leaf, vertex(VertexKind::kNic, fmt::format("n{}.nic{}<", node, nic)), base + node_.nic_in(nic));
    }
  }

  // Once a leaf group and once a pod: with their first node.
  void add_uplinks(int node) {
    const int leaf = fabric_.leaf_of(node);
    const int pod = fabric_.pod_of(node);
    const auto spine_of = [&](int spine) { return vertex(VertexKind::kSpine, fmt::format("pod{}.s{}", pod, spine)); };
    if (node == 0 || fabric_.leaf_of(node - 1) != leaf) {
      const bool links = fabric_.links_per_leaf > 0;
      const LinkId base = cluster_.first_link_of_leaf(leaf);
      for (int rail = 0; rail < fabric_.rails; ++rail) {
        for (int spine = 0; spine < fabric_.spines; ++spine) {
          edge(leaf_vertex(leaf, rail), spine_of(spine), links ? base + fabric_.leaf_out(rail, spine) : -1);
          edge(spine_of(spine), leaf_vertex(leaf, rail), links ? base + fabric_.leaf_in(rail, spine) : -1);
        }
      }
    }
    if (fabric_.links_per_pod == 0 || (node > 0 && fabric_.pod_of(node - 1) == pod)) return;
    const LinkId base = cluster_.first_link_of_pod(pod);
    for (int spine = 0; spine < fabric_.spines; ++spine) {
      for (int core = 0; core < fabric_.cores; ++core) {
        const Vertex to = vertex(VertexKind::kCore, fmt::format("s{}.c{}", spine, core));
        edge(spine_of(spine), to, base + fabric_.pod_out(spine, core));
        edge(to, spine_of(spine), base + fabric_.pod_in(spine, core));
      }
    }
  }

  const Cluster& cluster_;
  const NodeLayout& node_;
  const FabricLayout& fabric_;
  ClusterGraph& result_;
  std::map<std::string, Vertex> vertices_;
};

}  // namespace

ClusterGraph make_cluster_graph(const Cluster& cluster) {
  ClusterGraph result;
  Builder(cluster, result).build();
  return result;
}

}  // namespace longhaul
