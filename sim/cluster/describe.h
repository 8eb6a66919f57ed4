// What a cluster is, in figures for the `topology` command.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"

namespace longhaul {

// All links of one class.
struct LinkClassSummary {
  std::string name;
  LinkScope scope = LinkScope::kIntraNode;
  std::int64_t links = 0;  // directed
  BytesPerSecond rated;    // one link, one way
  BytesPerSecond effective;
  Time latency;
};

struct TopologySummary {
  std::string name;
  std::string description;
  std::string device;
  int gpus = 0;
  int nodes = 0;
  int gpus_per_node = 0;
  std::vector<LinkClassSummary> link_classes;
  // One way, between the first and the second half of the nodes (of the GPUs, when there is one node); effective rates.
  BytesPerSecond bisection;
};

struct RouteSummary {
  int from = 0;
  int to = 0;
  std::vector<std::string> links;
  BytesPerSecond bandwidth;  // of the narrowest; zero for from == to
  Time latency;
};

TopologySummary describe_topology(const Cluster& cluster);
RouteSummary describe_route(const Cluster& cluster, int from, int to);

}  // namespace longhaul
