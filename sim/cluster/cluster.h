// The first `gpus` GPUs of a topology as ranks 0..gpus-1 (rank r is GPU r % gpus_per_node of node r / gpus_per_node),
// their directed links, and the route between any two.
//
// Nodes are alike, so a route between two ranks is a template moved to their nodes: O(1), no table over pairs. The
// templates are shortest paths in a Boost.Graph of two nodes (pair_graph.h). Where what-ifs take links down, the pairs
// that they touch get templates of their own, made when first asked for and shared by all pairs with the same links
// down. An explicit graph keeps the distances from each GPU (graph_routes.h). Memory is O(links); building is O(links).
// Parallel paths: see Routing in topology.h; with `hash`, the choice is mix(from, to) over the ports, spines and cores.
// Invariants: immutable after build; `links()[id]` is dense; routes are deterministic, no link appears twice in one,
// and none is down. Ignores: levels of the network that can neither limit nor delay anything (link_layout.h).
#pragma once

#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/cluster/link_layout.h"
#include "sim/cluster/pair_graph.h"
#include "sim/cluster/topology.h"
#include "sim/core/error.h"

namespace longhaul {

using LinkId = std::int32_t;

class GraphRoutes;
class TouchedRoutes;

// A directed link. `bandwidth` is what it carries (rated x efficiency of its class, changed by what-ifs).
struct Link {
  std::string name;  // "n3.g1.nvl>" out of GPU 1 of node 3; "n3.nic0<" into node 3
  BytesPerSecond bandwidth;
  Time latency;
  LinkScope scope = LinkScope::kIntraNode;
  std::uint8_t link_class = 0;  // index into Cluster::link_classes()
  bool down = false;            // on no route
};

// The directed links from one rank to another, first to last. By value: it holds up to kMaxHops ids inline.
using Route = boost::container::static_vector<LinkId, kMaxHops>;

class Cluster {
 public:
  int gpus() const { return gpus_; }
  int nodes() const { return nodes_; }
  // GPUs a node has; a cluster inside one node may use fewer of them.
  int gpus_per_node() const { return topology_.gpus_per_node; }
  int node_of(int rank) const { return rank / topology_.gpus_per_node; }
  int local_of(int rank) const { return rank % topology_.gpus_per_node; }
  // NVLink domains: the GPUs that NVLink joins. One a node, or one for several nodes of a rack.
  int gpus_per_domain() const { return topology_.domain_gpus(); }
  int domain_of(int rank) const { return rank / topology_.domain_gpus(); }
  int domains() const { return (gpus_ + gpus_per_domain() - 1) / gpus_per_domain(); }
  const Topology& topology() const { return topology_; }
  const DeviceSpec& device() const { return topology_.device; }
  std::span<const Link> links() const { return links_; }
  std::span<const LinkClass> link_classes() const { return classes_; }
  // What the topology says of a link before any what-if: its class, or in an explicit graph the link's own values.
  const LinkClass& described(LinkId link) const;
  // Whether what-ifs change the link or take it down.
  bool is_changed(LinkId link) const;
  // Empty for from == to. Asserts that both are ranks.
  Route route(int from, int to) const;
  // As above; nullopt if links that are down leave no way (make_cluster refuses such a cluster).
  std::optional<Route> find_route(int from, int to) const;
  // Sum of link latencies of a route.
  Time route_latency(int from, int to) const;

  // Whether routes follow from how two nodes stand to each other and from the GPUs' places in them alone: no explicit
  // graph, `spread` routing, nothing down. Then route(from, to) is pattern_route(), each link at its place.
  bool routes_by_pattern() const { return !graph_routes_ && !touched_ && topology_.routing == Routing::kSpread; }
  PairPattern pattern_of(int source_node, int target_node) const;
  // Links from GPU `from` of the source's node to GPU `to` of the target's, first to last. Not for explicit graphs.
  std::span<const PartLink> pattern_route(PairPattern pattern, int from, int to) const;
  LinkId link_at(const PartLink& link, int source_node, int target_node) const {
    return base_of(link.owner, source_node, target_node) + link.index;
  }

  // The same with only the links down that the first `count` what-ifs take down: to tell which of them cuts ranks off.
  Cluster with_what_ifs_down(std::size_t count) const;

  // Builds; asserts that the topology has such links as its what-ifs name. Use make_cluster, which checks the input.
  Cluster(const Topology& topology, int gpus);

  const NodeLayout& node_layout() const { return node_layout_; }
  const FabricLayout& fabric_layout() const { return fabric_layout_; }
  // The parts that links belong to, in the order of their ids: nodes, leaf groups, pods (none in an explicit graph).
  int leaf_groups() const { return leaf_groups_; }
  int pods() const { return pods_; }
  LinkId first_link_of_node(int node) const { return node * node_layout_.links; }
  LinkId first_link_of_leaf(int leaf) const {
    return nodes_ * node_layout_.links + leaf * fabric_layout_.links_per_leaf;
  }
  LinkId first_link_of_pod(int pod) const {
    return first_link_of_leaf(leaf_groups_) + pod * fabric_layout_.links_per_pod;
  }

 private:
  friend Expected<Cluster> make_cluster(const Topology&, int, const std::string&, const std::string&);
  static Cluster built(const Topology& topology, int gpus);
  Cluster(const Topology& topology, int gpus, Errors& errors);  // after errors, only fit to be thrown away
  void add_links();
  void add_graph_links();
  void route_around_down_links();
  void add_templates();
  PathChoice choice_of(int from, int to) const;
  Route template_route(int from, int to) const;
  LinkId base_of(LinkOwner owner, int source, int target) const;

  Topology topology_;
  int gpus_ = 0;
  int nodes_ = 0;
  int leaf_groups_ = 0;  // whose links are there
  int pods_ = 0;
  NodeLayout node_layout_;
  FabricLayout fabric_layout_;
  std::vector<LinkClass> classes_;
  std::vector<Link> links_;
  // CSR over (pattern, GPU of the source's node, GPU of the target's), for the first of all parallel links.
  std::vector<std::int32_t> template_first_;
  std::vector<PartLink> template_links_;
  std::shared_ptr<TouchedRoutes> touched_;  // null where nothing is down
  std::shared_ptr<const GraphRoutes> graph_routes_;
};

// Checks `gpus` against the topology: at least 1, not above a fixed size, and a multiple of gpus_per_node unless it
// fits in one node; the ports of its switches; and its what-ifs: every pattern names a link, background traffic leaves
// some of every link, and every rank can still reach every other. `file` and `path` locate the GPU count in error
// messages; faults of what-ifs are at theirs.
Expected<Cluster> make_cluster(const Topology& topology, int gpus, const std::string& file = "<command line>",
                               const std::string& path = "/gpus");

}  // namespace longhaul
