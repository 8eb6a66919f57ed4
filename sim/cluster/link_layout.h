// Which links each part of a cluster has, how they are numbered inside their part, and what they are called.
//
// Parts of one kind are alike: nodes ("n3.g1.nvl>", "n3.g0>g1", "n3.g1.pcie>", "n3.nic0>", "n3.nvs>"), leaf groups (the
// leaves of all rails over the same nodes: "leaf0.r3>", with several spines "leaf0.r3.s5>"), pods ("pod1>",
// "pod1.s5.c2>"). ">" leads out of a part or up, "<" into it or down.
// A level of the network that cannot limit or delay anything (no oversubscription, no latency of its own, `spread`
// routing) has no links, unless a what-if names them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cluster/topology.h"

namespace longhaul {

// Indices of Cluster::link_classes().
inline constexpr std::uint8_t kNvLinkClass = 0;
inline constexpr std::uint8_t kNicClass = 1;
inline constexpr std::uint8_t kPcieClass = 2;
inline constexpr std::uint8_t kLeafClass = 3;
inline constexpr std::uint8_t kNvSwitchClass = 4;
inline constexpr std::uint8_t kSpineClass = 5;

// Links of a node: NVLinks, then PCIe links (GPU to NIC, then NIC to GPU), then NICs (out, in), then the second level
// of NVSwitches.
struct NodeLayout {
  explicit NodeLayout(const Topology& topology);
  int nvlink(int gpu, int peer) const { return gpu * (gpus - 1) + (peer < gpu ? peer : peer - 1); }  // pairs
  int nvlink_up(int gpu) const { return 2 * gpu; }
  int nvlink_down(int gpu) const { return 2 * gpu + 1; }
  int pcie_out(int gpu) const { return first_pcie + 2 * gpu; }
  int pcie_in(int gpu) const { return first_pcie + 2 * gpu + 1; }
  int nic_out(int nic) const { return first_nic + 2 * nic; }
  int nic_in(int nic) const { return first_nic + 2 * nic + 1; }
  int nvswitch_up() const { return first_nvswitch; }
  int nvswitch_down() const { return first_nvswitch + 1; }
  bool is_nic(int index) const { return index >= first_nic && index < first_nvswitch; }
  // The NIC of a GPU: its `port`-th, or the one that it shares.
  int nic_of(int gpu, int port) const { return nics >= gpus ? gpu * ports + port : gpu * nics / gpus; }

  int gpus = 0;
  int nics = 0;   // NIC links: with `spread`, the NICs of a GPU are one
  int ports = 1;  // NIC links of a GPU
  int first_pcie = 0;
  int first_nic = 0;
  int first_nvswitch = 0;
  int links = 0;
};

// Links of a leaf group and of a pod. Without leaves all nodes hang on one switch.
struct FabricLayout {
  FabricLayout(const Topology& topology, const NodeLayout& node);
  int leaf_out(int rail, int spine) const { return 2 * (rail * spines + spine); }
  int leaf_in(int rail, int spine) const { return 2 * (rail * spines + spine) + 1; }
  int pod_out(int spine, int core) const { return 2 * (spine * cores + core); }
  int pod_in(int spine, int core) const { return 2 * (spine * cores + core) + 1; }
  int leaf_of(int node) const { return node / nodes_per_leaf; }
  int pod_of(int node) const { return node / nodes_per_pod; }

  int rails = 1;           // leaves of a group
  int spines = 1;          // of a pod that are told apart
  int cores = 1;           // that a spine's uplinks are told apart by
  int nodes_per_leaf = 1;  // kWholeCluster where leaves have no links
  int nodes_per_pod = 1;   // kWholeCluster where pods have no links
  int links_per_leaf = 0;
  int links_per_pod = 0;
};

inline constexpr int kWholeCluster = 1 << 30;

// Ports of a switch towards the next level, at the rate of one NIC; rounded up.
int leaf_uplinks(const Topology& topology);
int spine_uplinks(const Topology& topology);

// The classes of a cluster's links, by the indices above; `rated` of a logical link.
std::vector<LinkClass> link_classes_of(const Topology& topology);

struct NamedLink {
  std::string name;
  std::uint8_t link_class = 0;
};
// The links of one part, by index.
std::vector<NamedLink> node_links(const Topology& topology, int node);
std::vector<NamedLink> leaf_links(const Topology& topology, int leaf);
std::vector<NamedLink> pod_links(const Topology& topology, int pod);

}  // namespace longhaul
