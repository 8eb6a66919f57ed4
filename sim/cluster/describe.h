// What a cluster is, in figures for the `topology` command.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cluster/bisection.h"
#include "sim/cluster/cluster.h"

namespace longhaul {

// All links of one class. In an explicit graph, whose links have values of their own, rates and latency are those of
// the narrowest one.
struct LinkClassSummary {
  std::string name;
  LinkScope scope = LinkScope::kIntraNode;
  std::int64_t links = 0;  // directed
  BytesPerSecond rated;    // one link, one way
  BytesPerSecond effective;
  Time latency;
  std::int64_t changed = 0;  // by what-ifs
};

struct TopologySummary {
  std::string name;
  std::string description;
  std::string device;
  int gpus = 0;
  int nodes = 0;
  int gpus_per_node = 0;
  int gpus_per_domain = 0;
  std::string technology;  // of the network
  std::vector<LinkClassSummary> link_classes;
  // One way, between the first and the second half of the GPUs; effective rates, with what-ifs (bisection.h).
  BytesPerSecond bisection;
  std::vector<LevelBisection> bisections;
  std::vector<std::string> what_ifs;
};

struct Hop {
  std::string link;
  BytesPerSecond bandwidth;
  Time latency;
};

struct RouteSummary {
  int from = 0;
  int to = 0;
  std::vector<std::string> links;
  std::vector<Hop> hops;
  BytesPerSecond bandwidth;  // of the narrowest; zero for from == to
  Time latency;
};

TopologySummary describe_topology(const Cluster& cluster);
RouteSummary describe_route(const Cluster& cluster, int from, int to);

}  // namespace longhaul
