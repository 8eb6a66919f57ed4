#include "sim/cluster/topology.h"

namespace longhaul {

Time Topology::nvlink_step() const {
  return node_fabric == NodeFabric::kNvSwitch ? nvlink.latency + nvlink.latency : nvlink.latency;
}

BytesPerSecond Topology::nvlink_rate_per_gpu() const {
  const int links = node_fabric == NodeFabric::kNvSwitch ? 1 : gpus_per_node - 1;
  return {nvlink.rated.value * links};
}

Time Topology::network_step() const {
  const Time one_end = nic.latency + (pcie ? pcie->latency : Time::zero());
  return one_end + one_end;
}

std::string_view technology_name(NetworkTechnology technology) {
  constexpr std::string_view kNames[] = {"infiniband", "roce", "efa", "tcpx", "tcpxo", "ethernet"};
  return kNames[static_cast<std::size_t>(technology)];
}

}  // namespace longhaul
