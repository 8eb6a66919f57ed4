// What a topology file says (`"schema": "topology/1"`, topologies/topology.schema.json): identical nodes of GPUs that
// are joined inside by NVLink and outside by NICs; or, with "graph", any small machine link by link.
//
// Inside a node either an NVSwitch (every GPU has one link up and one down) or a direct link between every two GPUs.
// An NVLink domain is a node, or several whose GPUs one NVLink switch system joins (NVL72), in one level of switches or
// two. Outside: one switch; a rail-optimised fabric (NIC k of every node hangs on a leaf of rail k, and traffic between
// rails first changes GPU over NVLink, NCCL's PXN); or a classic fat tree (all NICs of some nodes on one leaf). Leaves
// hang on spines and, with pods, spines on cores; each level has its oversubscription. Rates are one way. A link
// carries rated x efficiency bytes per second: the efficiency is what NCCL reaches on that kind of link, not a tuning
// knob.
//
// Routing over parallel paths: `spread` shares every flow equally, so that the parallel links of a level (the NICs of a
// GPU, the uplinks of a leaf, those of a pod) are one logical link of the summed rate; `hash` keeps them apart and puts
// each flow on one, chosen by a fixed hash of its two ranks, so that flows collide as they do in a static ECMP fabric.
// Ignores: adaptive routing between the two, more than one device model in a cluster.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cluster/device.h"
#include "sim/cluster/graph_spec.h"
#include "sim/cluster/link_class.h"
#include "sim/cluster/what_if.h"
#include "sim/core/error.h"
#include "sim/core/sim_time.h"
#include "sim/core/units.h"

namespace longhaul {

enum class NodeFabric { kNvSwitch, kPairs };
enum class NetworkFabric { kRails, kFatTree, kSingleSwitch };
enum class Routing { kSpread, kHash };
// What the NICs speak. Decides which of NCCL's constants hold between nodes.
enum class NetworkTechnology { kInfiniBand, kRoce, kEfa, kTcpx, kTcpxo, kEthernet };
enum class HostCpu { kIntel, kAmd, kGrace };

// "infiniband", "roce", ...
std::string_view technology_name(NetworkTechnology technology);

struct Topology {
  std::string name;
  std::string description;
  DeviceSpec device;
  int gpus_per_node = 0;
  std::optional<int> nodes;  // set: exactly this many are there at most; not set: any number
  NodeFabric node_fabric = NodeFabric::kNvSwitch;
  LinkClass nvlink;         // a GPU to the NVSwitch, or a GPU to one peer, one way
  int nvlink_links = 0;     // NVLinks of a GPU, to the switch or to all its peers
  int gpus_per_domain = 0;  // GPUs that NVLink joins: 72 in an NVL72 rack, else gpus_per_node; 0 means the latter
  bool nvls = false;        // the NVSwitch reduces and multicasts (NVLink SHARP), and NCCL uses it
  HostCpu cpu = HostCpu::kIntel;
  std::optional<LinkClass> nvswitch;  // a node's NVSwitches to the second level of its domain, all together, one way
  int nics_per_node = 0;          // GPU g uses NIC g * nics_per_node / gpus_per_node, or as many NICs as each GPU has
  LinkClass nic;                  // one NIC, one way
  std::optional<LinkClass> pcie;  // a GPU to its NIC, where that is narrower than the NIC; one way
  NetworkFabric network_fabric = NetworkFabric::kSingleSwitch;
  NetworkTechnology technology = NetworkTechnology::kInfiniBand;
  bool sharp = false;                 // the switches of the network reduce, and NCCL uses it (CollNet)
  int nodes_per_leaf = 0;             // rails and fat tree
  double oversubscription = 1;        // NIC rate under a leaf over its rate to the spine; 1 is non-blocking
  int leaves_per_pod = 0;             // of each rail; 0: two levels, no core
  double spine_oversubscription = 1;  // rate under the spines of a pod over their rate to the core
  Time spine_latency;                 // what a route over the spine takes longer
  Time core_latency;                  // what a route over the core takes longer still
  Routing routing = Routing::kSpread;
  std::optional<int> spines;      // of a pod (of the cluster, in two levels); unset: as many as a leaf has uplinks
  std::optional<int> leaf_radix;  // ports of a switch
  std::optional<int> spine_radix;
  std::vector<std::string> stands_for;  // fabrics of measured tables, for find_topology
  std::vector<WhatIf> what_ifs;         // in the order in which they apply
  std::optional<GraphSpec> graph;       // then it, not the shape above, says which links there are

  // GPUs of one NVLink domain: a node, or several where one NVLink switch system joins them.
  int domain_gpus() const { return gpus_per_domain > 0 ? gpus_per_domain : gpus_per_node; }
  bool leaves() const { return network_fabric != NetworkFabric::kSingleSwitch; }
  // NICs that each GPU has to itself; 1 where GPUs share one.
  int nics_per_gpu() const { return nics_per_node > gpus_per_node ? nics_per_node / gpus_per_node : 1; }
  // What the NICs of a GPU carry together, one way, as rated (a shared NIC counts in equal parts).
  BytesPerSecond nic_rate_per_gpu() const { return {nic.rated.value * nics_per_node / gpus_per_node}; }
  // What the NVLinks of a GPU carry together, one way, as rated.
  BytesPerSecond nvlink_rate_per_gpu() const;

  // Wire latency of one step: from a GPU to one of its node, through the switch where there is one.
  Time nvlink_step() const;
  // From a GPU to one of another node on the same rail: both NICs, and PCIe at both ends.
  Time network_step() const;
};

// Reads a shipped name (`data_directory`/topologies/NAME.json) or a path. All faults at once; an unknown name lists the
// shipped ones and the nearest.
Expected<Topology> read_topology(const std::string& name_or_path, const std::string& data_directory);

// Parses a topology value of a study: a string (as read_topology), a whole object, or an object with "base": a name or
// path whose file is taken and then patched by the other keys (RFC 7396 merge), e.g.
// {"base": "dgx-h200-ndr", "scale_nvlink": 0.5, "scale_network": 2, "nodes": 4}.
// `file` and `path` (JSON pointer) locate the value in error messages.
Expected<Topology> parse_topology(const nlohmann::ordered_json& json, const std::string& file, const std::string& path,
                                  const std::string& data_directory);

// Names of the shipped topologies, sorted.
std::vector<std::string> shipped_topologies(const std::string& data_directory);

}  // namespace longhaul
