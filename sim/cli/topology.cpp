// longhaul topology: what a cluster file describes.
#include "sim/cluster/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "reports/topology_svg.h"
#include "sim/cli/command.h"
#include "sim/cluster/describe.h"
#include "sim/core/data_files.h"

namespace longhaul {
namespace {

struct TopologyArguments {
  GlobalOptions global;
  std::string file;
  std::optional<int> gpus;
  std::vector<int> route;
  std::string svg;
};

const char* scope_text(LinkScope scope) { return scope == LinkScope::kIntraNode ? "inside a node" : "between nodes"; }

// The asked route, or one to each kind of place: the next GPU, the next node, NVLink domain, leaf and pod.
std::vector<RouteSummary> routes(const Cluster& cluster, const TopologyArguments& options) {
  if (options.route.size() == 2) return {describe_route(cluster, options.route[0], options.route[1])};
  const Topology& shape = cluster.topology();
  const std::int64_t node = cluster.gpus_per_node();
  const std::int64_t domain = cluster.gpus_per_domain();
  const std::int64_t leaf = shape.leaves() ? node * shape.nodes_per_leaf : 0;
  const std::int64_t pod = leaf * shape.leaves_per_pod;
  std::vector<std::int64_t> targets;
  for (const std::int64_t to : {std::int64_t{1}, node, domain, domain + 1, leaf, pod}) {
    const bool is_new = std::find(targets.begin(), targets.end(), to) == targets.end();
    if (to > 0 && to < cluster.gpus() && is_new) targets.push_back(to);
  }
  std::sort(targets.begin(), targets.end());
  std::vector<RouteSummary> list;
  for (const std::int64_t to : targets) list.push_back(describe_route(cluster, 0, static_cast<int>(to)));
  return list;
}

Json summary_json(const TopologySummary& summary, const std::vector<RouteSummary>& list) {
  Json json = {{"schema", "topology-summary/1"},
               {"name", summary.name},
               {"device", summary.device},
               {"gpus", summary.gpus},
               {"nodes", summary.nodes},
               {"gpus_per_node", summary.gpus_per_node},
               {"gpus_per_domain", summary.gpus_per_domain},
               {"network", summary.technology},
               {"bisection_GBps", summary.bisection.value / 1e9}};
  json["bisections"] = Json::array();
  for (const LevelBisection& level : summary.bisections) {
    json["bisections"].push_back({{"level", level.level}, {"gpus", level.gpus}, {"GBps", level.rate.value / 1e9}});
  }
  json["links"] = Json::array();
  for (const LinkClassSummary& link : summary.link_classes) {
    json["links"].push_back({{"name", link.name},
                             {"scope", link.scope == LinkScope::kIntraNode ? "intra_node" : "inter_node"},
                             {"count", link.links},
                             {"rated_GBps", link.rated.value / 1e9},
                             {"effective_GBps", link.effective.value / 1e9},
                             {"latency_us", link.latency.us()},
                             {"changed", link.changed}});
  }
  json["what_if"] = summary.what_ifs;
  json["routes"] = Json::array();
  for (const RouteSummary& route : list) {
    Json hops = Json::array();
    for (const Hop& hop : route.hops) {
      hops.push_back(
          {{"link", hop.link}, {"bandwidth_GBps", hop.bandwidth.value / 1e9}, {"latency_us", hop.latency.us()}});
    }
    json["routes"].push_back({{"from", route.from},
                              {"to", route.to},
                              {"links", route.links},
                              {"hops", std::move(hops)},
                              {"bandwidth_GBps", route.bandwidth.value / 1e9},
                              {"latency_us", route.latency.us()}});
  }
  return json;
}

std::string summary_csv(const TopologySummary& summary) {
  std::string text = "link,scope,count,rated_GBps,effective_GBps,latency_us,changed\n";
  for (const LinkClassSummary& link : summary.link_classes) {
    text += fmt::format("{},{},{},{:.9g},{:.9g},{:.9g},{}\n", link.name, scope_text(link.scope), link.links,
                        link.rated.value / 1e9, link.effective.value / 1e9, link.latency.us(), link.changed);
  }
  return text;
}

std::string route_text(const RouteSummary& route) {
  std::string text = fmt::format("\n  rank {} to {}: {:.1f} GB/s, {:.2f} us\n", route.from, route.to,
                                 route.bandwidth.value / 1e9, route.latency.us());
  std::size_t width = 20;
  for (const Hop& hop : route.hops) width = std::max(width, hop.link.size());
  for (const Hop& hop : route.hops) {
    text += fmt::format("    {:<{}} {:>10.1f} GB/s {:>8.2f} us\n", hop.link, width, hop.bandwidth.value / 1e9,
                        hop.latency.us());
  }
  return text;
}

std::string summary_table(const TopologySummary& summary, const std::vector<RouteSummary>& list) {
  std::string text = fmt::format("{}: {}\n{} GPU{} ({}) in {} node{} of {}, {}\n", summary.name, summary.description,
                                 summary.gpus, summary.gpus == 1 ? "" : "s", summary.device, summary.nodes,
                                 summary.nodes == 1 ? "" : "s", summary.gpus_per_node, summary.technology);
  if (summary.gpus_per_domain > summary.gpus_per_node) {
    text += fmt::format("NVLink domains of {} GPUs\n", summary.gpus_per_domain);
  }
  for (const std::string& what_if : summary.what_ifs) text += fmt::format("what if: {}\n", what_if);
  text += fmt::format("\n  {:<12} {:<14} {:>8} {:>12} {:>14} {:>11} {:>8}\n", "link", "scope", "count", "rated GB/s",
                      "effective GB/s", "latency us", "changed");
  for (const LinkClassSummary& link : summary.link_classes) {
    text +=
        fmt::format("  {:<12} {:<14} {:>8} {:>12.1f} {:>14.1f} {:>11.2f} {:>8}\n", link.name, scope_text(link.scope),
                    link.links, link.rated.value / 1e9, link.effective.value / 1e9, link.latency.us(), link.changed);
  }
  text += fmt::format("\n  {:<14} {:>8} {:>22}\n", "bisection of", "GPUs", "GB/s one way");
  for (const LevelBisection& level : summary.bisections) {
    text += fmt::format("  {:<14} {:>8} {:>22.1f}\n", level.level, level.gpus, level.rate.value / 1e9);
  }
  for (const RouteSummary& route : list) text += route_text(route);
  return text;
}

int topology(const TopologyArguments& options) {
  const Expected<Topology> read = read_topology(options.file, data_directory());
  if (!read) return wrong_input(read.error());
  constexpr int kDomainsWhenOpen = 2;
  const int all = read->nodes ? *read->nodes * read->gpus_per_node : kDomainsWhenOpen * read->domain_gpus();
  const int gpus = options.gpus.value_or(all);
  const Expected<Cluster> cluster = make_cluster(*read, gpus, "<command line>", "--gpus");
  if (!cluster) return wrong_input(cluster.error());
  Errors errors;
  for (const int rank : options.route) {
    if (rank < 0 || rank >= gpus) {
      errors.push_back({"<command line>", "--route", fmt::format("there is no rank {}", rank),
                        fmt::format("0 to {}", gpus - 1), ""});
    }
  }
  if (!errors.empty()) return wrong_input(errors);
  const TopologySummary summary = describe_topology(*cluster);
  const std::vector<RouteSummary> list = routes(*cluster, options);
  if (!options.svg.empty()) write_file(options.svg, "--svg", topology_svg(*cluster));
  switch (options.global.format()) {
    case Format::kJson:
      print(summary_json(summary, list).dump(2) + "\n");
      break;
    case Format::kCsv:
      print(summary_csv(summary));
      break;
    case Format::kTable:
      print(summary_table(summary, list));
      break;
  }
  return kExitDone;
}

}  // namespace

void add_topology(CLI::App& app, Action& action) {
  auto options = std::make_shared<TopologyArguments>();
  CLI::App* command = app.add_subcommand("topology", "Describe a cluster: nodes, links, bisection, routes");
  command->add_option("FILE", options->file, "A shipped topology's name or a file")->required();
  command->add_option("--gpus", options->gpus,
                      "GPUs taken (default: all, or two NVLink domains where the number is open)");
  command->add_option("--svg", options->svg, "Also draw it into this file");
  command->add_option("--route", options->route, "Route between two ranks")->expected(2);
  add_global_options(*command, options->global, "longhaul topology dgx-h200-ndr --gpus 64 --route 0 9");
  command->callback([&action, options] { action = [options] { return topology(*options); }; });
}

}  // namespace longhaul
