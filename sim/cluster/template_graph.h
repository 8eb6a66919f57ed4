// Route templates of a topology: shortest paths in a Boost.Graph of two nodes, written so that they can be moved to any
// two nodes of a cluster.
//
// The links of one node are numbered 0..links_per_node-1, those of one leaf group (all rails) 0..links_per_leaf-1.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/topology.h"

namespace longhaul {

// Which part of a cluster a link of a template belongs to.
enum class LinkOwner : std::uint8_t { kSourceNode, kTargetNode, kSourceLeaf, kTargetLeaf };

struct TemplateLink {
  LinkOwner owner = LinkOwner::kSourceNode;
  std::int32_t index = 0;  // within its owner
  bool operator==(const TemplateLink&) const = default;
};

// Where source and target are relative to each other.
enum class RoutePattern : std::uint8_t { kSameNode, kSameLeaf, kOtherLeaf };
inline constexpr int kRoutePatterns = 3;

// Numbers of the links of one node: NVLinks, then PCIe links (GPU to NIC, then NIC to GPU), then NICs (out, in).
struct NodeLinkLayout {
  explicit NodeLinkLayout(const Topology& topology);
  int nvlink(int gpu, int peer) const;  // pairs
  int nvlink_up(int gpu) const { return 2 * gpu; }
  int nvlink_down(int gpu) const { return 2 * gpu + 1; }
  int pcie_out(int gpu) const { return first_pcie + 2 * gpu; }
  int pcie_in(int gpu) const { return first_pcie + 2 * gpu + 1; }
  int nic_out(int nic) const { return first_nic + 2 * nic; }
  int nic_in(int nic) const { return first_nic + 2 * nic + 1; }

  int gpus = 0;
  int first_pcie = 0;
  int first_nic = 0;
  int links = 0;
};

// Whether leaf-to-spine links can limit anything: rails with oversubscription above 1.
bool leaves_limit(const Topology& topology);

// CSR over (pattern, GPU of the source node, GPU of the target node).
struct RouteTemplates {
  std::vector<std::int32_t> first;  // kRoutePatterns * gpus^2 + 1
  std::vector<TemplateLink> links;
};

RouteTemplates make_route_templates(const Topology& topology);

}  // namespace longhaul
