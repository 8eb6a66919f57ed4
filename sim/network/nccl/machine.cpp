#include <cmath>

#include "sim/core/units.h"
#include "sim/network/nccl/model.h"

namespace longhaul {
namespace {

NcclGpu gpu_of(GpuGeneration generation) {
  switch (generation) {
    case GpuGeneration::kAmpere:
      return NcclGpu::kAmpere;
    case GpuGeneration::kHopper:
      return NcclGpu::kHopper;
    case GpuGeneration::kBlackwell:
      return NcclGpu::kBlackwell;
    case GpuGeneration::kCdna4:
      return NcclGpu::kCdna;
  }
  return NcclGpu::kHopper;
}

NcclNetwork network_of(NetworkTechnology technology, GpuGeneration generation) {
  switch (technology) {
    case NetworkTechnology::kInfiniBand:
      return NcclNetwork::kInfiniBand;
    case NetworkTechnology::kRoce:
      return NcclNetwork::kRoce;
    case NetworkTechnology::kEfa:
      return generation == GpuGeneration::kAmpere ? NcclNetwork::kEfa1 : NcclNetwork::kEfa2;
    case NetworkTechnology::kTcpx:
      return NcclNetwork::kTcpx;
    case NetworkTechnology::kTcpxo:
      return NcclNetwork::kTcpxo;
    case NetworkTechnology::kEthernet:
      return NcclNetwork::kEthernet;
  }
  return NcclNetwork::kInfiniBand;
}

// NCCL's rate of an NVLink over the rated one (graph/topo.h): 20.0, 20.6 and 40.1 GB/s of 25, 25 and 50. Of Infinity
// Fabric RCCL's rate is not known here; it takes that of NVLink 3.
double nccl_share(NcclGpu gpu) {
  switch (gpu) {
    case NcclGpu::kAmpere:
    case NcclGpu::kCdna:
      return 20.0 / 25;
    case NcclGpu::kHopper:
      return 20.6 / 25;
    case NcclGpu::kBlackwell:
      return 40.1 / 50;
  }
  return 0.8;
}

}  // namespace

NcclMachine nccl_machine(const Topology& topology) {
  const GpuGeneration generation = topology.device.generation;
  NcclMachine out;
  out.gpu = gpu_of(generation);
  out.nvswitch = topology.node_fabric == NodeFabric::kNvSwitch;
  out.nvlink_rate = topology.nvlink_rate_per_gpu().value / kGiga * nccl_share(out.gpu);
  out.nvlink_links = topology.nvlink_links;
  out.memory_rate = topology.device.memory_bandwidth.value / kGiga;
  out.gpus_per_domain = topology.domain_gpus();
  const int nodes = topology.domain_gpus() / topology.gpus_per_node;
  out.nics_per_domain = topology.nics_per_node * (nodes > 0 ? nodes : 1);
  out.nic_rate = topology.nics_per_node > 0 ? topology.nic_rate_per_gpu().value / kGiga : 0;
  out.network = network_of(topology.technology, generation);
  out.cpu = topology.cpu;
  out.sharp = topology.sharp;
  out.nvls = topology.nvls;
  return out;
}

}  // namespace longhaul
