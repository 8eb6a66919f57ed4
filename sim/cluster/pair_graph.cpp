#include "sim/cluster/pair_graph.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Hop costs: rails first. Changing GPU over NVLink (2) is cheaper than passing the spine (2 x 16).
constexpr std::int64_t kNvLinkCost = 1;
constexpr std::int64_t kPcieCost = 1;  // twice: GPU to PCIe switch to NIC
constexpr std::int64_t kNicCost = 8;
constexpr std::int64_t kSpineCost = 16;
constexpr std::int64_t kCoreCost = 32;
// Preferences: of two equal ways, the one that changes GPU at the source (0) before the one at the target (1), and the
// preferred of parallel links. A cost is worth more than all preferences of a path, a preference more than all its edge
// numbers: a path has at most kMaxHops links and as many free edges, preferences stay below 2^12 and edge numbers below
// 2^26.
constexpr std::int64_t kPreferenceUnit = std::int64_t{1} << 31;
constexpr std::int64_t kCostUnit = std::int64_t{1} << 48;

struct EdgeProperties {
  std::int64_t weight = 0;
  LinkOwner owner = LinkOwner::kSourceNode;
  int index = -1;  // -1: no link, it never limits
};

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, EdgeProperties>;
using Vertex = boost::graph_traits<Graph>::vertex_descriptor;
using Edge = boost::graph_traits<Graph>::edge_descriptor;

}  // namespace

class PairGraph::Impl {
 public:
  Impl(const Topology& topology, PairPattern pattern, PathChoice choice, const DownLinks* down)
      : topology_(topology),
        layout_(topology),
        fabric_(topology, layout_),
        pattern_(pattern),
        choice_(choice),
        down_(down) {
    nodes_ = pattern.relation == NodeRelation::kSameNode ? 1 : 2;
    for (Side* side : {&before_, &after_}) {
      for (int node = 0; node < nodes_; ++node) add_node(*side, node);
      add_domain(*side);
    }
    for (int node = 0; node < nodes_; ++node) add_nics(node);
    add_network();
  }

  std::size_t target_node() const { return static_cast<std::size_t>(nodes_ - 1); }

  std::vector<std::optional<PartRoute>> routes_from(int from) const {
    const Vertex source = before_.gpus[0][static_cast<std::size_t>(from)];
    std::vector<Vertex> parents(boost::num_vertices(graph_));
    std::vector<std::int64_t> distances(boost::num_vertices(graph_));
    boost::dijkstra_shortest_paths(graph_, source,
                                   boost::predecessor_map(parents.data())
                                       .distance_map(distances.data())
                                       .weight_map(boost::get(&EdgeProperties::weight, graph_)));
    std::vector<std::optional<Edge>> tree(boost::num_vertices(graph_));
    for (const Edge edge : boost::make_iterator_range(boost::edges(graph_))) {
      const Vertex to = boost::target(edge, graph_);
      const Vertex parent = boost::source(edge, graph_);
      if (parents[to] == to || parents[to] != parent) continue;
      if (distances[parent] + graph_[edge].weight == distances[to]) tree[to] = edge;
    }
    std::vector<std::optional<PartRoute>> routes;
    for (std::size_t to = 0; to < static_cast<std::size_t>(layout_.gpus); ++to) {
      const Vertex by_nvlink = before_.gpus[target_node()][to];
      const Vertex by_network = after_.gpus[target_node()][to];
      routes.push_back(path(tree, source, distances[by_nvlink] <= distances[by_network] ? by_nvlink : by_network));
    }
    return routes;
  }

 private:
  std::optional<PartRoute> path(const std::vector<std::optional<Edge>>& tree, Vertex source, Vertex target) const {
    std::vector<PartLink> links;
    for (Vertex vertex = target; vertex != source;) {
      if (!tree[vertex]) return std::nullopt;
      const EdgeProperties& edge = graph_[*tree[vertex]];
      if (edge.index >= 0) links.push_back({edge.owner, edge.index});
      vertex = boost::source(*tree[vertex], graph_);
    }
    LH_ASSERT(links.size() <= kMaxHops, "a route of {} links", links.size());
    return PartRoute(links.rbegin(), links.rend());
  }

  void add_edge(Vertex from, Vertex to, std::int64_t cost, EdgeProperties edge, int preference = 0) {
    ++edges_;
    if (down_ != nullptr && edge.index >= 0) {
      const std::vector<std::int32_t>* down = (*down_)[static_cast<std::size_t>(edge.owner)];
      if (down != nullptr && std::binary_search(down->begin(), down->end(), edge.index)) return;
    }
    edge.weight = cost * kCostUnit + preference * kPreferenceUnit + edges_;
    boost::add_edge(from, to, edge, graph_);
  }

  // Places after the preferred one, of `count` in a circle; nullopt: such a link is not needed.
  std::optional<int> places_after(int place, int preferred, int count) const {
    const int places = (place - preferred % count + count) % count;
    if (down_ == nullptr && places > 0) return std::nullopt;
    return places;
  }

  std::vector<Vertex> add_vertices(int count) {
    std::vector<Vertex> vertices;
    for (int i = 0; i < count; ++i) vertices.push_back(boost::add_vertex(graph_));
    return vertices;
  }

  LinkOwner node_owner(int node) const { return node == 0 ? LinkOwner::kSourceNode : LinkOwner::kTargetNode; }

  // GPUs and NVSwitches stand twice in the graph, before and after the network: no route passes the network twice, and
  // none is relayed by a GPU elsewhere.
  struct Side {
    int number = 0;
    std::vector<std::vector<Vertex>> gpus;  // by node
    std::vector<Vertex> nvswitches;
  };

  void add_node(Side& side, int node) {
    const auto& gpus = side.gpus.emplace_back(add_vertices(layout_.gpus));
    const auto link = [&](int index) { return EdgeProperties{0, node_owner(node), index}; };
    if (topology_.node_fabric == NodeFabric::kNvSwitch) {
      // One switch system for a whole domain, unless it has two levels.
      if (node == 0 || topology_.nvswitch || !pattern_.joined) side.nvswitches.push_back(boost::add_vertex(graph_));
      const Vertex nvswitch = side.nvswitches.back();
      for (int gpu = 0; gpu < layout_.gpus; ++gpu) {
        const Vertex vertex = gpus[static_cast<std::size_t>(gpu)];
        add_edge(vertex, nvswitch, kNvLinkCost, link(layout_.nvlink_up(gpu)), side.number);
        add_edge(nvswitch, vertex, kNvLinkCost, link(layout_.nvlink_down(gpu)));
      }
    } else {
      for (int gpu = 0; gpu < layout_.gpus; ++gpu) {
        for (int peer = 0; peer < layout_.gpus; ++peer) {
          if (gpu == peer) continue;
          add_edge(gpus[static_cast<std::size_t>(gpu)], gpus[static_cast<std::size_t>(peer)], kNvLinkCost,
                   link(layout_.nvlink(gpu, peer)), side.number);
        }
      }
    }
  }

  // GPU to PCIe switch to NIC; GPUs that share a NIC share the switch.
  void add_nics(int node) {
    const auto& out = nics_out_.emplace_back(add_vertices(layout_.nics));
    const auto& in = nics_in_.emplace_back(add_vertices(layout_.nics));
    const auto link = [&](int index) { return EdgeProperties{0, node_owner(node), index}; };
    Vertex switch_out = 0;
    Vertex switch_in = 0;
    for (int gpu = 0; gpu < layout_.gpus; ++gpu) {
      const bool shares = gpu > 0 && layout_.nic_of(gpu, 0) == layout_.nic_of(gpu - 1, 0);
      if (!shares) {
        switch_out = boost::add_vertex(graph_);
        switch_in = boost::add_vertex(graph_);
      }
      const auto place = static_cast<std::size_t>(gpu);
      const Vertex from = before_.gpus[static_cast<std::size_t>(node)][place];
      const Vertex to = after_.gpus[static_cast<std::size_t>(node)][place];
      add_edge(from, switch_out, kPcieCost, topology_.pcie ? link(layout_.pcie_out(gpu)) : EdgeProperties{});
      add_edge(switch_in, to, kPcieCost, topology_.pcie ? link(layout_.pcie_in(gpu)) : EdgeProperties{});
      for (int port = 0; !shares && port < layout_.ports; ++port) {
        const auto preference = places_after(port, choice_.port, layout_.ports);
        if (!preference) continue;
        const auto nic = static_cast<std::size_t>(layout_.nic_of(gpu, port));
        add_edge(switch_out, out[nic], kPcieCost, {}, *preference);
        add_edge(in[nic], switch_in, kPcieCost, {}, *preference);
      }
    }
  }

  void add_domain(const Side& side) {
    if (!topology_.nvswitch || !pattern_.joined || nodes_ == 1) return;
    const Vertex second = boost::add_vertex(graph_);
    for (int node = 0; node < 2; ++node) {
      const Vertex first = side.nvswitches[static_cast<std::size_t>(node)];
      add_edge(first, second, kNvLinkCost, {0, node_owner(node), layout_.nvswitch_up()});
      add_edge(second, first, kNvLinkCost, {0, node_owner(node), layout_.nvswitch_down()});
    }
  }

  void add_network() {
    const int pods = pattern_.relation == NodeRelation::kOtherPod ? 2 : 1;
    const int groups = pattern_.relation == NodeRelation::kSamePod ? 2 : pods;
    std::vector<std::vector<Vertex>> spines;
    for (int pod = 0; pod < pods; ++pod) spines.push_back(add_vertices(fabric_.spines));
    std::vector<Vertex> leaves;
    for (int group = 0; group < groups; ++group) {
      for (int rail = 0; rail < fabric_.rails; ++rail) {
        leaves.push_back(boost::add_vertex(graph_));
        add_uplinks(group, rail, leaves.back(), spines[pods == 1 ? 0 : static_cast<std::size_t>(group)]);
      }
    }
    for (int node = 0; node < nodes_; ++node) {
      for (int nic = 0; nic < layout_.nics; ++nic) {
        const Vertex out = nics_out_[static_cast<std::size_t>(node)][static_cast<std::size_t>(nic)];
        const Vertex in = nics_in_[static_cast<std::size_t>(node)][static_cast<std::size_t>(nic)];
        const int leaf = (groups == 1 ? 0 : node) * fabric_.rails + (fabric_.rails > 1 ? nic : 0);
        const Vertex to = leaves[static_cast<std::size_t>(leaf)];
        add_edge(out, to, kNicCost, {0, node_owner(node), layout_.nic_out(nic)});
        add_edge(to, in, kNicCost, {0, node_owner(node), layout_.nic_in(nic)});
      }
    }
    if (pods == 2) add_cores(spines);
  }

  void add_uplinks(int group, int rail, Vertex leaf, const std::vector<Vertex>& spines) {
    const LinkOwner owner = group == 0 ? LinkOwner::kSourceLeaf : LinkOwner::kTargetLeaf;
    const bool links = fabric_.links_per_leaf > 0;
    for (int spine = 0; spine < fabric_.spines; ++spine) {
      const auto preference = places_after(spine, choice_.spine, fabric_.spines);
      if (!preference) continue;
      const Vertex to = spines[static_cast<std::size_t>(spine)];
      add_edge(leaf, to, kSpineCost, {0, owner, links ? fabric_.leaf_out(rail, spine) : -1}, *preference);
      add_edge(to, leaf, kSpineCost, {0, owner, links ? fabric_.leaf_in(rail, spine) : -1}, *preference);
    }
  }

  void add_cores(const std::vector<std::vector<Vertex>>& spines) {
    const bool links = fabric_.links_per_pod > 0;
    for (int spine = 0; spine < fabric_.spines; ++spine) {
      if (!places_after(spine, choice_.spine, fabric_.spines)) continue;
      for (int core = 0; core < fabric_.cores; ++core) {
        const auto preference = places_after(core, choice_.core, fabric_.cores);
        if (!preference) continue;
        const Vertex vertex = boost::add_vertex(graph_);
        for (std::size_t pod = 0; pod < 2; ++pod) {
          const LinkOwner owner = pod == 0 ? LinkOwner::kSourcePod : LinkOwner::kTargetPod;
          const Vertex from = spines[pod][static_cast<std::size_t>(spine)];
          add_edge(from, vertex, kCoreCost, {0, owner, links ? fabric_.pod_out(spine, core) : -1}, *preference);
          add_edge(vertex, from, kCoreCost, {0, owner, links ? fabric_.pod_in(spine, core) : -1}, *preference);
        }
      }
    }
  }

  const Topology& topology_;
  NodeLayout layout_;
  FabricLayout fabric_;
  PairPattern pattern_;
  PathChoice choice_;
  const DownLinks* down_;
  int nodes_ = 1;
  std::int64_t edges_ = 0;
  Graph graph_;
  std::vector<std::vector<Vertex>> nics_out_;
  std::vector<std::vector<Vertex>> nics_in_;
  Side before_{0, {}, {}};
  Side after_{1, {}, {}};
};

PairGraph::PairGraph(const Topology& topology, PairPattern pattern, PathChoice choice, const DownLinks* down)
    : impl_(std::make_unique<Impl>(topology, pattern, choice, down)) {}

PairGraph::~PairGraph() = default;

std::vector<std::optional<PartRoute>> PairGraph::routes_from(int from) const { return impl_->routes_from(from); }

}  // namespace longhaul
