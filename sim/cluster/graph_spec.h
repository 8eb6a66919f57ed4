// A machine link by link: `"graph": {"vertices": [...], "links": [...]}` of a topology file, for machines that no shape
// of nodes, rails and leaves describes. Small ones: at most kMaxGraphGpus GPUs.
//
//   {"vertices": [{"name": "g0", "kind": "gpu"}, {"name": "sw0", "kind": "leaf", "radix": 40}],
//    "links": [{"from": "g0", "to": "sw0", "class": "nvlink", "count": 2, "gbytes_per_s": 25, "one_way": true}]}
//
// Rank r is the r-th GPU of the list, node r / gpus_per_node. A link joins both ways unless it is one_way. What it does
// not say of rate, efficiency and latency is as the topology's link of that class ("leaf" and "spine": as its NIC).
// `count` parallel links are one link of the summed rate where routing is `spread`, and apart where it is `hash`.
// Routes are shortest paths, NVLink cheapest, then PCIe, NIC, leaf and spine; among equal ones a flow takes one: the
// first (`spread`) or by a hash of its ranks (`hash`).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/link_class.h"
#include "sim/core/error.h"

namespace longhaul {

inline constexpr int kMaxGraphGpus = 1024;
inline constexpr int kMaxGraphVertices = 8192;

enum class VertexKind { kGpu, kNvSwitch, kPcieSwitch, kNic, kLeaf, kSpine, kCore };

struct GraphVertex {
  std::string name;
  VertexKind kind = VertexKind::kGpu;
};

// One direction of a link.
struct GraphLink {
  int from = 0;  // index of a vertex
  int to = 0;
  LinkClass link_class;  // of this link, rate summed where links are bundled
  std::string name;      // "g0.sw0>", "g0.sw0<"; "g0.sw0#1>" for the second of parallel links
};

struct GraphSpec {
  std::vector<GraphVertex> vertices;
  std::vector<GraphLink> links;
  std::vector<int> gpus;  // vertex of each rank
};

// The classes that a link may name, with what it takes from them.
struct GraphDefaults {
  LinkClass nvlink;
  LinkClass nic;
  std::optional<LinkClass> pcie;
  bool bundled = true;  // parallel links are one
  int gpus_per_node = 1;
  double scale_nvlink = 1;   // of rates that a link of class "nvlink" gives itself; the classes are scaled already
  double scale_network = 1;  // of all others
};

// Appends every fault to `errors`: unknown kinds, classes and ends, two vertices of one name, rates that are not
// positive, more links on a switch than its radix, GPUs that do not fill nodes, ranks without a way to each other.
GraphSpec parse_graph(const nlohmann::ordered_json& json, const std::string& file, const std::string& path,
                      const GraphDefaults& defaults, Errors& errors);

}  // namespace longhaul
