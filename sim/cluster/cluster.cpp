#include "sim/cluster/cluster.h"

#include <fmt/format.h>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Indices of Cluster::link_classes().
constexpr std::uint8_t kNvLinkClass = 0;
constexpr std::uint8_t kNicClass = 1;
constexpr std::uint8_t kPcieClass = 2;
constexpr int kLeafClass = 3;

// All rails of one leaf group together ask for NICs under them; each rail's leaf carries this much to the spine.
LinkClass leaf_class(const Topology& topology) {
  LinkClass leaf = topology.nic;
  leaf.name = "leaf";
  leaf.rated.value *= topology.nodes_per_leaf / topology.oversubscription;
  leaf.latency = Time::zero();  // counted in the network step
  return leaf;
}

}  // namespace

Cluster::Cluster(const Topology& topology, int gpus)
    : topology_(topology),
      gpus_(gpus),
      nodes_((gpus + topology.gpus_per_node - 1) / topology.gpus_per_node),
      templates_(make_route_templates(topology)) {
  classes_ = {topology.nvlink, topology.nic, topology.pcie.value_or(LinkClass{}), leaf_class(topology)};
  links_per_node_ = NodeLinkLayout(topology).links;
  leaf_nodes_ = nodes_;
  int groups = 0;
  if (leaves_limit(topology)) {
    leaf_nodes_ = topology.nodes_per_leaf;
    links_per_leaf_ = 2 * topology.nics_per_node;
    groups = (nodes_ + leaf_nodes_ - 1) / leaf_nodes_;
  }
  links_.reserve(static_cast<std::size_t>(nodes_) * static_cast<std::size_t>(links_per_node_) +
                 static_cast<std::size_t>(groups) * static_cast<std::size_t>(links_per_leaf_));
  for (int node = 0; node < nodes_; ++node) add_node_links(node);
  for (int group = 0; group < groups; ++group) add_leaf_links(group);
}

void Cluster::add_node_links(int node) {
  const NodeLinkLayout layout(topology_);
  const std::size_t base = links_.size();
  links_.resize(base + static_cast<std::size_t>(layout.links));
  const auto set = [&](int index, std::uint8_t link_class, std::string name) {
    const LinkClass& kind = classes_[link_class];
    links_[base + static_cast<std::size_t>(index)] = {std::move(name), kind.effective(), kind.latency, kind.scope,
                                                      link_class};
  };
  for (int gpu = 0; gpu < topology_.gpus_per_node; ++gpu) {
    if (topology_.node_fabric == NodeFabric::kNvSwitch) {
      set(layout.nvlink_up(gpu), kNvLinkClass, fmt::format("n{}.g{}.nvl>", node, gpu));
      set(layout.nvlink_down(gpu), kNvLinkClass, fmt::format("n{}.g{}.nvl<", node, gpu));
    }
    for (int peer = 0; topology_.node_fabric == NodeFabric::kPairs && peer < topology_.gpus_per_node; ++peer) {
      if (peer != gpu) set(layout.nvlink(gpu, peer), kNvLinkClass, fmt::format("n{}.g{}>g{}", node, gpu, peer));
    }
    if (topology_.pcie) {
      set(layout.pcie_out(gpu), kPcieClass, fmt::format("n{}.g{}.pcie>", node, gpu));
      set(layout.pcie_in(gpu), kPcieClass, fmt::format("n{}.g{}.pcie<", node, gpu));
    }
  }
  for (int nic = 0; nic < topology_.nics_per_node; ++nic) {
    set(layout.nic_out(nic), kNicClass, fmt::format("n{}.nic{}>", node, nic));
    set(layout.nic_in(nic), kNicClass, fmt::format("n{}.nic{}<", node, nic));
  }
}

void Cluster::add_leaf_links(int group) {
  const LinkClass& kind = classes_[kLeafClass];
  for (int rail = 0; rail < topology_.nics_per_node; ++rail) {
    for (const char* direction : {">", "<"}) {
      links_.push_back({fmt::format("leaf{}.r{}{}", group, rail, direction), kind.effective(), kind.latency, kind.scope,
                        kLeafClass});
    }
  }
}

Route Cluster::route(int from, int to) const {
  LH_ASSERT(from >= 0 && from < gpus_ && to >= 0 && to < gpus_, "route from rank {} to {} of {}", from, to, gpus_);
  Route route;
  if (from == to) return route;
  const int source = node_of(from);
  const int target = node_of(to);
  const RoutePattern pattern = source == target                               ? RoutePattern::kSameNode
                               : source / leaf_nodes_ == target / leaf_nodes_ ? RoutePattern::kSameLeaf
                                                                              : RoutePattern::kOtherLeaf;
  const int row = static_cast<int>(pattern) * gpus_per_node() + local_of(from);
  const auto entry = static_cast<std::size_t>(row * gpus_per_node() + local_of(to));
  const auto first = static_cast<std::size_t>(templates_.first[entry]);
  const auto last = static_cast<std::size_t>(templates_.first[entry + 1]);
  for (std::size_t i = first; i < last; ++i) {
    const TemplateLink& link = templates_.links[i];
    LinkId base = 0;
    switch (link.owner) {
      case LinkOwner::kSourceNode:
        base = source * links_per_node_;
        break;
      case LinkOwner::kTargetNode:
        base = target * links_per_node_;
        break;
      case LinkOwner::kSourceLeaf:
        base = first_link_of_leaf(source);
        break;
      case LinkOwner::kTargetLeaf:
        base = first_link_of_leaf(target);
        break;
    }
    route.push_back(base + link.index);
  }
  return route;
}

Time Cluster::route_latency(int from, int to) const {
  Time latency;
  for (const LinkId link : route(from, to)) latency += links_[static_cast<std::size_t>(link)].latency;
  return latency;
}

Expected<Cluster> make_cluster(const Topology& topology, int gpus, const std::string& file, const std::string& path) {
  Errors errors;
  const int per_node = topology.gpus_per_node;
  const auto refuse = [&](std::string expected) {
    errors.push_back({file, path, fmt::format("is {}", gpus), std::move(expected), ""});
  };
  if (gpus < 1) refuse("at least 1 GPU");
  if (topology.nodes && gpus > *topology.nodes * per_node) {
    refuse(fmt::format("at most {} GPUs, all that {} has", *topology.nodes * per_node, topology.name));
  }
  if (errors.empty() && gpus > (1 << 20)) refuse(fmt::format("at most {} GPUs", 1 << 20));
  if (errors.empty() && gpus > per_node && gpus % per_node != 0) {
    refuse(fmt::format("at most {0} GPUs, or a multiple of the {0} of a node of {1}: {2} or {3}", per_node,
                       topology.name, gpus / per_node * per_node, (gpus / per_node + 1) * per_node));
  }
  if (!errors.empty()) return tl::unexpected(errors);
  return Cluster(topology, gpus);
}

}  // namespace longhaul
