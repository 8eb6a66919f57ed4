// What a topology file says (`"schema": "topology/1"`, topologies/topology.schema.json): identical nodes of GPUs that
// are joined inside by NVLink and outside by NICs.
//
// Inside a node either an NVSwitch (every GPU has one link up and one down) or a direct link between every two GPUs.
// Outside either one switch, or a rail-optimised leaf/spine fabric: NIC k of every node hangs on a leaf of rail k, and
// traffic between rails first changes GPU over NVLink (NCCL's PXN). Rates are one way. A link carries
// rated x efficiency bytes per second: the efficiency is what NCCL reaches on that kind of link, not a tuning knob.
// Ignores: adaptive-routing collisions in a non-blocking fabric, failures, more than one device model in a cluster.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/device.h"
#include "sim/core/error.h"
#include "sim/core/sim_time.h"
#include "sim/core/units.h"

namespace longhaul {

enum class LinkScope { kIntraNode, kInterNode };

// One kind of link: all links of a kind in a cluster are equal.
struct LinkClass {
  std::string name;  // "nvlink", "pcie", "nic", "leaf"
  BytesPerSecond rated;
  double efficiency = 1;
  Time latency;  // one traversal
  LinkScope scope = LinkScope::kIntraNode;

  BytesPerSecond effective() const { return {rated.value * efficiency}; }
};

enum class NodeFabric { kNvSwitch, kPairs };
enum class NetworkFabric { kRails, kSingleSwitch };
// What the NICs speak. Decides which of NCCL's constants hold between nodes.
enum class NetworkTechnology { kInfiniBand, kRoce, kEfa, kTcpx, kTcpxo, kEthernet };
enum class HostCpu { kIntel, kAmd, kGrace };

struct Topology {
  std::string name;
  std::string description;
  DeviceSpec device;
  int gpus_per_node = 0;
  std::optional<int> nodes;  // set: exactly this many are there at most; not set: any number
  NodeFabric node_fabric = NodeFabric::kNvSwitch;
  LinkClass nvlink;               // a GPU to the NVSwitch, or a GPU to one peer, one way
  int nvlink_links = 0;           // NVLinks of a GPU, to the switch or to all its peers
  int gpus_per_domain = 0;        // GPUs that NVLink joins: 72 in an NVL72 rack, else gpus_per_node; 0 means the latter
  bool nvls = false;              // the NVSwitch reduces and multicasts (NVLink SHARP), and NCCL uses it
  HostCpu cpu = HostCpu::kIntel;
  int nics_per_node = 0;          // GPU g uses NIC g * nics_per_node / gpus_per_node
  LinkClass nic;                  // one NIC, one way
  std::optional<LinkClass> pcie;  // a GPU to its NIC, where that is narrower than the NIC; one way
  NetworkFabric network_fabric = NetworkFabric::kSingleSwitch;
  NetworkTechnology technology = NetworkTechnology::kInfiniBand;
  bool sharp = false;           // the switches of the network reduce, and NCCL uses it (CollNet)
  Time ll_hop;                  // what NCCL adds to network_step() for one hop over this network, LL protocol
  Time simple_hop;              // the same, Simple protocol
  int nodes_per_leaf = 0;       // rails only
  double oversubscription = 1;  // rails only: NIC rate under a leaf over its rate to the spine; 1 is non-blocking

  // GPUs of one NVLink domain: a node, or several where one NVLink switch system joins them.
  int domain_gpus() const { return gpus_per_domain > 0 ? gpus_per_domain : gpus_per_node; }
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
