#include "sim/cluster/describe.h"

#include <utility>

namespace longhaul {
TopologySummary describe_topology(const Cluster& cluster) {
  TopologySummary summary;
  summary.name = cluster.topology().name;
  summary.description = cluster.topology().description;
  summary.device = cluster.device().name;
  summary.gpus = cluster.gpus();
  summary.nodes = cluster.nodes();
  summary.gpus_per_node = cluster.gpus_per_node();
  summary.gpus_per_domain = cluster.gpus_per_domain();
  summary.technology = technology_name(cluster.topology().technology);
  for (std::size_t kind = 0; kind < cluster.link_classes().size(); ++kind) {
    LinkClassSummary of;
    for (LinkId id = 0; id < static_cast<LinkId>(cluster.links().size()); ++id) {
      if (cluster.links()[static_cast<std::size_t>(id)].link_class != kind) continue;
      const LinkClass& link = cluster.described(id);
      if (of.links == 0 || link.effective() < of.effective) {
        of.rated = link.rated;
        of.effective = link.effective();
        of.latency = link.latency;
      }
      ++of.links;
      if (cluster.is_changed(id)) ++of.changed;
    }
    if (of.links == 0) continue;
    of.name = cluster.link_classes()[kind].name;
    of.scope = cluster.link_classes()[kind].scope;
    summary.link_classes.push_back(std::move(of));
  }
  summary.bisections = bisections(cluster);
  summary.bisection = summary.bisections.empty() ? BytesPerSecond{} : summary.bisections.back().rate;
  for (const WhatIf& what_if : cluster.topology().what_ifs) summary.what_ifs.push_back(what_if.to_string());
  return summary;
}

RouteSummary describe_route(const Cluster& cluster, int from, int to) {
  RouteSummary summary{from, to, {}, {}, {}, cluster.route_latency(from, to)};
  for (const LinkId id : cluster.route(from, to)) {
    const Link& link = cluster.links()[static_cast<std::size_t>(id)];
    summary.links.push_back(link.name);
    summary.hops.push_back({link.name, link.bandwidth, link.latency});
    if (summary.bandwidth.value == 0 || link.bandwidth < summary.bandwidth) summary.bandwidth = link.bandwidth;
  }
  return summary;
}

}  // namespace longhaul
