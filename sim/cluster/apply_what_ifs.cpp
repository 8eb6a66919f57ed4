#include "sim/cluster/apply_what_ifs.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/printable.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxNamesCompared = 20'000;

void add_error(const WhatIf& what_if, const std::string& key, std::string message, std::string expected, Errors& errors,
               std::string nearest = "") {
  const std::string path = key.empty() ? what_if.path : what_if.path + "/" + key;
  errors.push_back({what_if.file, path, std::move(message), std::move(expected), std::move(nearest)});
}

// The links that a what-if by pattern or rail names. The leaves of a fat tree are no rail's: all NICs hang on them.
std::vector<std::size_t> links_of(const WhatIf& what_if, const Topology& topology, const std::vector<Link>& links) {
  std::vector<std::string> patterns = {what_if.links};
  if (what_if.rail) {
    const int rail = *what_if.rail;
    patterns = {fmt::format("n*.nic{}", rail)};
    if (topology.network_fabric == NetworkFabric::kRails) {
      patterns.push_back(fmt::format("leaf*.r{}", rail));
      patterns.push_back(fmt::format("leaf*.r{}.*", rail));
    }
  }
  std::vector<std::size_t> found;
  for (std::size_t link = 0; link < links.size(); ++link) {
    const auto names = [&](const std::string& pattern) { return names_link(pattern, links[link].name); };
    if (std::any_of(patterns.begin(), patterns.end(), names)) found.push_back(link);
  }
  return found;
}

void refuse_pattern(const WhatIf& what_if, const std::vector<Link>& links, Errors& errors) {
  std::vector<std::string> names;
  for (const Link& link : links) {
    if (names.size() == kMaxNamesCompared) break;
    names.push_back(link.name);
  }
  add_error(what_if, "links", fmt::format("\"{}\" names no link of this cluster", echoed(what_if.links)),
            links.empty() ? std::string("no such entry: the cluster has no links")
                          : fmt::format("a name or a pattern of its {} links, such as \"{}\" or \"{}\"", links.size(),
                                        links.front().name, links.back().name),
            errors, nearest_name(what_if.links, names));
}

void check_ranks(const Cluster& cluster, const WhatIf& what_if, Errors& errors) {
  for (const auto& [key, rank] : {std::pair("from", what_if.from), std::pair("to", what_if.to)}) {
    if (rank && *rank >= cluster.gpus()) {
      add_error(what_if, key, fmt::format("there is no rank {}", *rank), fmt::format("0 to {}", cluster.gpus() - 1),
                errors);
    }
  }
}

void check_rail(const Cluster& cluster, const WhatIf& what_if, Errors& errors) {
  if (!what_if.rail) return;
  const int nics = cluster.node_layout().nics;
  if (cluster.topology().graph) {
    add_error(what_if, "rail", "has no meaning here", "\"links\": the topology is a graph, link by link", errors);
  } else if (*what_if.rail >= nics) {
    add_error(what_if, "rail", fmt::format("there is no rail {}", *what_if.rail), fmt::format("0 to {}", nics - 1),
              errors);
  }
}

TouchedRoutes::DownByPart down_by_part(const Cluster& cluster, LinkId first, int links_per_part, int parts) {
  TouchedRoutes::DownByPart down;
  for (int part = 0; part < parts; ++part) {
    for (int index = 0; index < links_per_part; ++index) {
      const auto link = static_cast<std::size_t>(first + part * links_per_part + index);
      if (cluster.links()[link].down) down[part].push_back(index);
    }
  }
  return down;
}

void change_link(Link& link, const WhatIf& what_if, Errors& errors) {
  link.bandwidth.value *= what_if.scale_bandwidth;
  link.latency = Time::from_seconds(link.latency.seconds() * what_if.scale_latency);
  if (what_if.background.value == 0) return;
  if (what_if.background.value >= link.bandwidth.value) {
    add_error(what_if, "background_gbytes_per_s", fmt::format("is {}", what_if.background.value / 1e9),
              fmt::format("less than the {} GB/s that {} carries", link.bandwidth.value / 1e9, link.name), errors);
    return;
  }
  link.bandwidth.value -= what_if.background.value;
}

}  // namespace

void mark_down(const Cluster& cluster, std::vector<Link>& links, Errors& errors) {
  for (const WhatIf& what_if : cluster.topology().what_ifs) {
    check_ranks(cluster, what_if, errors);
    check_rail(cluster, what_if, errors);
    if (what_if.from || (what_if.rail && !what_if.down)) continue;
    const std::vector<std::size_t> found = links_of(what_if, cluster.topology(), links);
    if (found.empty() && !what_if.rail) refuse_pattern(what_if, links, errors);
    for (const std::size_t link : found) links[link].down |= what_if.down;
  }
}

std::shared_ptr<TouchedRoutes> touched_routes(const Cluster& cluster) {
  const NodeLayout& node = cluster.node_layout();
  const FabricLayout& fabric = cluster.fabric_layout();
  return std::make_shared<TouchedRoutes>(
      cluster.topology(), down_by_part(cluster, 0, node.links, cluster.nodes()),
      down_by_part(cluster, cluster.first_link_of_leaf(0), fabric.links_per_leaf, cluster.leaf_groups()),
      down_by_part(cluster, cluster.first_link_of_pod(0), fabric.links_per_pod, cluster.pods()));
}

void change_links(const Cluster& cluster, std::vector<Link>& links, Errors& errors) {
  for (const WhatIf& what_if : cluster.topology().what_ifs) {
    if (what_if.from) {
      for (const LinkId link : cluster.route(*what_if.from, *what_if.to)) {
        change_link(links[static_cast<std::size_t>(link)], what_if, errors);
      }
      continue;
    }
    if (what_if.down) continue;
    const std::size_t before = errors.size();
    for (const std::size_t link : links_of(what_if, cluster.topology(), links)) {
      if (errors.size() == before) change_link(links[link], what_if, errors);
    }
  }
}

}  // namespace longhaul
