// The first `gpus` GPUs of a topology as ranks 0..gpus-1 (rank r is GPU r % gpus_per_node of node r / gpus_per_node),
// their directed links, and the route between any two.
//
// The topology of two nodes is a Boost.Graph at build time; shortest paths in it (NVLink cheapest, then the NIC, then
// the spine: rails first) give route templates. Nodes are identical, so a route between any two ranks is a template
// moved to their nodes: O(1), no table over pairs. Memory is O(links); building is O(links).
// Invariants: immutable after build; `links()[id]` is dense; routes are deterministic, and no link appears twice in
// one. Ignores: leaf-to-spine links of a non-blocking fabric (the NICs under a leaf cannot ask for more than they
// carry).
#pragma once

#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/cluster/template_graph.h"
#include "sim/cluster/topology.h"
#include "sim/core/error.h"

namespace longhaul {

using LinkId = std::int32_t;

// A directed link. `bandwidth` is what it carries (rated x efficiency of its class).
struct Link {
  std::string name;  // "n3.g1.nvl>" out of GPU 1 of node 3; "n3.nic0<" into node 3
  BytesPerSecond bandwidth;
  Time latency;
  LinkScope scope = LinkScope::kIntraNode;
  std::uint8_t link_class = 0;  // index into Cluster::link_classes()
};

// The directed links from one rank to another, first to last. By value: it holds up to kMaxHops ids inline.
inline constexpr std::size_t kMaxHops = 16;
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
  // Empty for from == to. Asserts that both are ranks.
  Route route(int from, int to) const;
  // Sum of link latencies of a route.
  Time route_latency(int from, int to) const;

  // Builds; use make_cluster, which checks the input.
  Cluster(const Topology& topology, int gpus);

 private:
  void add_node_links(int node);
  void add_leaf_links(int group);
  LinkId first_link_of_leaf(int node) const {
    return nodes_ * links_per_node_ + (node / leaf_nodes_) * links_per_leaf_;
  }

  Topology topology_;
  int gpus_ = 0;
  int nodes_ = 0;
  int links_per_node_ = 0;
  int links_per_leaf_ = 0;  // 0 when leaves never limit
  int leaf_nodes_ = 1;
  std::vector<LinkClass> classes_;
  std::vector<Link> links_;
  RouteTemplates templates_;
};

// Checks `gpus` against the topology: at least 1, not above a fixed size, and a multiple of gpus_per_node unless it
// fits in one node. `file` and `path` locate the GPU count in error messages.
Expected<Cluster> make_cluster(const Topology& topology, int gpus, const std::string& file = "<command line>",
                               const std::string& path = "/gpus");

}  // namespace longhaul
