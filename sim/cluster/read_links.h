// Readers of the parts of a topology file that describe its links. Each appends every fault to the reader's errors and
// leaves harmless values where something is faulty.
#pragma once

#include "sim/cluster/topology.h"
#include "sim/core/json.h"

namespace longhaul {

inline constexpr double kMinRate = 0.001;  // GB/s or Gb/s
inline constexpr double kMaxRate = 1e5;
inline constexpr std::int64_t kMaxNodes = 1 << 20;

// The keys that every link class has.
void read_link(JsonReader& reader, LinkClass& link);

// "nvlink", "network" and "pcie" of the object that `parent` reads. `topology` holds device and gpus_per_node.
void read_nvlink(const Json& json, JsonReader& parent, Topology& topology);
void read_network(const Json& json, JsonReader& parent, Topology& topology);
void read_pcie(const Json& json, JsonReader& parent, Topology& topology);

}  // namespace longhaul
