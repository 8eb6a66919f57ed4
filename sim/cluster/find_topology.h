// The shipped topology that a machine of a measured table is: by GPU, fabric, and GPUs a node.
//
// Data-driven: a device file lists the names that tables give it (`"aliases"`), a topology file lists the fabrics that
// it stands for (`"stands_for"`). Names are compared without case. No two shipped files stand for the same machine.
#pragma once

#include <optional>
#include <string>

#include "sim/cluster/topology.h"
#include "sim/core/error.h"

namespace longhaul {

// A machine as a table's row names it.
struct MachineQuery {
  std::string gpu;                   // "H100-80GB", "A100-SXM4-80GB", "GB300", "H100(assumed)"
  int nodes = 1;                     // hosts
  std::optional<int> gpus_per_node;  // GPUs that a host has; unset: any
  std::string fabric;                // "infiniband", "roce", "efa", "tcpx", "tcpxo", "nvlink", "nvl72", ...; empty or
                                     // "unstated": the GPU's machine that stands for "nvlink" (its maker's own), where
                                     // none with so many GPUs a node does the first that ships
};

// The device name that a GPU string means ("H100-80GB" -> "h100"), or an error that lists the names known.
Expected<std::string> find_device(const std::string& gpu, const std::string& data_directory,
                                  const std::string& file = "<command line>", const std::string& path = "/gpu");

// The name of the shipped topology. A network technology ("roce") over which no machine of this GPU ships is stood in
// for: by a machine over that network with GPUs of the same generation, as many a node (its NVLink and NICs are alike),
// else by the GPU's machine that stands for "nvlink"; `stand_in` then says so in a sentence. Errors name what is not
// known (GPU, fabric, GPUs a node) with what ships. `file` and `path` say where the row stands.
Expected<std::string> find_topology(const MachineQuery& query, const std::string& data_directory,
                                    const std::string& file = "<command line>", const std::string& path = "",
                                    std::string* stand_in = nullptr);

}  // namespace longhaul
