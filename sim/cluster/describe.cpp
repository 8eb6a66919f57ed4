#include "sim/cluster/describe.h"

#include <algorithm>

namespace longhaul {
namespace {

// One way out of the first `half` nodes to the rest. NICs inside one leaf group meet without the spine; what leaves a
// group shares its leaf links.
double network_bisection(const Cluster& cluster, int half) {
  const Topology& topology = cluster.topology();
  const double node_rate = topology.nic.effective().value * topology.nics_per_node;
  if (!leaves_limit(topology)) return node_rate * std::min(half, cluster.nodes() - half);
  const double leaf_rate = node_rate * topology.nodes_per_leaf / topology.oversubscription;
  const int group = topology.nodes_per_leaf;
  double out = 0;
  for (int first = 0; first < half; first += group) {
    const int senders = std::min(first + group, half) - first;
    const int receivers = std::min(first + group, cluster.nodes()) - first - senders;
    const bool others = first + group < cluster.nodes();
    out += std::min(node_rate * senders, node_rate * receivers + (others ? leaf_rate : 0));
  }
  return std::min(out, node_rate * (cluster.nodes() - half));
}

double bisection(const Cluster& cluster) {
  if (cluster.nodes() > 1) return network_bisection(cluster, cluster.nodes() / 2);
  const int half = cluster.gpus() / 2;
  const int rest = cluster.gpus() - half;
  const double link = cluster.topology().nvlink.effective().value;
  return cluster.topology().node_fabric == NodeFabric::kPairs ? link * half * rest : link * half;
}

}  // namespace

TopologySummary describe_topology(const Cluster& cluster) {
  TopologySummary summary;
  summary.name = cluster.topology().name;
  summary.description = cluster.topology().description;
  summary.device = cluster.device().name;
  summary.gpus = cluster.gpus();
  summary.nodes = cluster.nodes();
  summary.gpus_per_node = cluster.gpus_per_node();
  for (std::size_t kind = 0; kind < cluster.link_classes().size(); ++kind) {
    const LinkClass& link_class = cluster.link_classes()[kind];
    const auto links = std::count_if(cluster.links().begin(), cluster.links().end(),
                                     [&](const Link& link) { return link.link_class == kind; });
    if (links == 0) continue;
    summary.link_classes.push_back(
        {link_class.name, link_class.scope, links, link_class.rated, link_class.effective(), link_class.latency});
  }
  summary.bisection.value = bisection(cluster);
  return summary;
}

RouteSummary describe_route(const Cluster& cluster, int from, int to) {
  RouteSummary summary{from, to, {}, {}, cluster.route_latency(from, to)};
  for (const LinkId id : cluster.route(from, to)) {
    const Link& link = cluster.links()[static_cast<std::size_t>(id)];
    summary.links.push_back(link.name);
    if (summary.bandwidth.value == 0 || link.bandwidth < summary.bandwidth) summary.bandwidth = link.bandwidth;
  }
  return summary;
}

}  // namespace longhaul
