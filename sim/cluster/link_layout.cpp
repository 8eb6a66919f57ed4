#include "sim/cluster/link_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul {
namespace {

// A what-if names links of the level whose links begin with `prefix`.
bool named(const Topology& topology, std::string_view prefix) {
  return std::any_of(topology.what_ifs.begin(), topology.what_ifs.end(),
                     [&](const WhatIf& what_if) { return what_if.links.starts_with(prefix); });
}

bool leaves_have_links(const Topology& topology) {
  return topology.leaves() && (topology.oversubscription > 1 || topology.routing == Routing::kHash ||
                               topology.spine_latency > Time::zero() || named(topology, "leaf"));
}

bool pods_have_links(const Topology& topology) {
  return topology.leaves() && topology.leaves_per_pod > 0 &&
         (topology.spine_oversubscription > 1 || topology.routing == Routing::kHash ||
          topology.core_latency > Time::zero() || named(topology, "pod"));
}

int rounded_up(double count) {
  const int whole = static_cast<int>(count);
  return std::max(1, count > whole ? whole + 1 : whole);
}

// NICs under one leaf.
double nics_of_leaf(const Topology& topology) {
  return topology.network_fabric == NetworkFabric::kRails
             ? topology.nodes_per_leaf
             : static_cast<double>(topology.nodes_per_leaf) * topology.nics_per_node;
}

int leaves_of_pod(const Topology& topology) {
  const int rails = topology.network_fabric == NetworkFabric::kRails ? topology.nics_per_node : 1;
  return topology.leaves_per_pod * rails;
}

Time half(Time latency) { return Time::from_ps(latency.ps() / 2); }

const char* const kDirections[] = {">", "<"};

}  // namespace

NodeLayout::NodeLayout(const Topology& topology) : gpus(topology.gpus_per_node) {
  const bool bundled = topology.routing == Routing::kSpread;
  nics = bundled ? std::min(topology.nics_per_node, gpus) : topology.nics_per_node;
  ports = bundled ? 1 : topology.nics_per_gpu();
  first_pcie = topology.node_fabric == NodeFabric::kNvSwitch ? 2 * gpus : gpus * (gpus - 1);
  first_nic = first_pcie + (topology.pcie ? 2 * gpus : 0);
  first_nvswitch = first_nic + 2 * nics;
  links = first_nvswitch + (topology.nvswitch ? 2 : 0);
}

FabricLayout::FabricLayout(const Topology& topology, const NodeLayout& node) {
  rails = topology.network_fabric == NetworkFabric::kRails ? node.nics : 1;
  nodes_per_leaf = kWholeCluster;
  nodes_per_pod = kWholeCluster;
  if (topology.routing == Routing::kHash && topology.leaves()) {
    spines = topology.spines.value_or(leaf_uplinks(topology));
    if (topology.leaves_per_pod > 0) cores = spine_uplinks(topology);
  }
  const int pod_nodes = topology.leaves_per_pod * topology.nodes_per_leaf;
  if (pods_have_links(topology)) {
    nodes_per_pod = pod_nodes;
    nodes_per_leaf = pod_nodes;
    links_per_pod = 2 * spines * cores;
  }
  if (leaves_have_links(topology)) {
    nodes_per_leaf = topology.nodes_per_leaf;
    links_per_leaf = 2 * rails * spines;
  }
}

int leaf_uplinks(const Topology& topology) { return rounded_up(nics_of_leaf(topology) / topology.oversubscription); }

int spine_uplinks(const Topology& topology) {
  const double up = nics_of_leaf(topology) / topology.oversubscription * leaves_of_pod(topology);
  const int spines = topology.spines.value_or(leaf_uplinks(topology));
  return rounded_up(up / spines / topology.spine_oversubscription);
}

std::vector<LinkClass> link_classes_of(const Topology& topology) {
  const NodeLayout node(topology);
  const FabricLayout fabric(topology, node);
  LinkClass nic = topology.nic;
  if (topology.routing == Routing::kSpread) nic.rated.value *= topology.nics_per_gpu();
  LinkClass leaf = topology.nic;
  leaf.name = "leaf";
  // The NICs of a GPU that are one link hang on leaves that are one leaf.
  leaf.rated.value *= static_cast<double>(topology.nodes_per_leaf) * topology.nics_per_node / fabric.rails /
                      topology.oversubscription / fabric.spines;
  leaf.latency = half(topology.spine_latency);
  LinkClass spine = topology.nic;
  spine.name = "spine";
  spine.rated.value *= nics_of_leaf(topology) / topology.oversubscription * leaves_of_pod(topology) /
                       topology.spine_oversubscription / fabric.spines / fabric.cores;
  spine.latency = half(topology.core_latency);
  // A class that no link has keeps its name: links of an explicit graph are of one by name.
  LinkClass pcie = topology.pcie.value_or(LinkClass{});
  pcie.name = "pcie";
  LinkClass nvswitch = topology.nvswitch.value_or(LinkClass{});
  nvswitch.name = "nvswitch";
  return {topology.nvlink, nic, pcie, leaf, nvswitch, spine};
}

std::vector<NamedLink> node_links(const Topology& topology, int node) {
  const NodeLayout layout(topology);
  std::vector<NamedLink> links;
  links.reserve(static_cast<std::size_t>(layout.links));
  for (int gpu = 0; gpu < layout.gpus; ++gpu) {
    if (topology.node_fabric == NodeFabric::kNvSwitch) {
      for (const char* way : kDirections) links.push_back({fmt::format("n{}.g{}.nvl{}", node, gpu, way), kNvLinkClass});
      continue;
    }
    for (int peer = 0; peer < layout.gpus; ++peer) {
      if (peer != gpu) links.push_back({fmt::format("n{}.g{}>g{}", node, gpu, peer), kNvLinkClass});
    }
  }
  for (int gpu = 0; topology.pcie && gpu < layout.gpus; ++gpu) {
    for (const char* way : kDirections) links.push_back({fmt::format("n{}.g{}.pcie{}", node, gpu, way), kPcieClass});
  }
  for (int nic = 0; nic < layout.nics; ++nic) {
    for (const char* way : kDirections) links.push_back({fmt::format("n{}.nic{}{}", node, nic, way), kNicClass});
  }
  if (topology.nvswitch) {
    for (const char* way : kDirections) links.push_back({fmt::format("n{}.nvs{}", node, way), kNvSwitchClass});
  }
  return links;
}

std::vector<NamedLink> leaf_links(const Topology& topology, int leaf) {
  const FabricLayout layout(topology, NodeLayout(topology));
  std::vector<NamedLink> links;
  if (layout.links_per_leaf == 0) return links;
  for (int rail = 0; rail < layout.rails; ++rail) {
    for (int spine = 0; spine < layout.spines; ++spine) {
      const std::string to = topology.routing == Routing::kHash ? fmt::format(".s{}", spine) : "";
      for (const char* way : kDirections) {
        links.push_back({fmt::format("leaf{}.r{}{}{}", leaf, rail, to, way), kLeafClass});
      }
    }
  }
  return links;
}

std::vector<NamedLink> pod_links(const Topology& topology, int pod) {
  const FabricLayout layout(topology, NodeLayout(topology));
  std::vector<NamedLink> links;
  if (layout.links_per_pod == 0) return links;
  for (int spine = 0; spine < layout.spines; ++spine) {
    for (int core = 0; core < layout.cores; ++core) {
      const std::string to = topology.routing == Routing::kHash ? fmt::format(".s{}.c{}", spine, core) : "";
      for (const char* way : kDirections) links.push_back({fmt::format("pod{}{}{}", pod, to, way), kSpineClass});
    }
  }
  return links;
}

}  // namespace longhaul
