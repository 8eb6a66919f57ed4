// What one GPU model is: datasheet peaks and sizes, read from topologies/devices/*.json (`"schema": "device/1"`).
//
// Units are in the types. Rates are peaks of the data sheet; what a kernel reaches of them is the cost room's matter.
// Ignores: clocks, power and thermal limits, partitioned devices.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/core/units.h"

namespace longhaul {

// Decides the constants of NCCL's protocols (sim/network/nccl).
enum class GpuGeneration { kAmpere, kHopper, kBlackwell, kCdna4 };

struct DeviceSpec {
  std::string name;
  GpuGeneration generation = GpuGeneration::kHopper;
  Bytes memory;    // all of it, as the driver reports it
  Bytes reserved;  // kept by the CUDA context, NCCL and the allocator's rounding; not usable by a training step
  FlopsPerSecond bf16_dense;
  BytesPerSecond memory_bandwidth;  // HBM, reads plus writes
  int multiprocessors = 0;
  BytesPerSecond host_link;          // one way, PCIe or C2C, as rated
  std::vector<std::string> aliases;  // how measured tables name it: "H100-80GB"

  // What a training step may use.
  Bytes usable() const { return memory - reserved; }
};

// Reads `name_or_path`: a name shipped under `data_directory`/topologies/devices, or a path to a file (anything with a
// '/' or ending in ".json"). Every fault is returned at once.
Expected<DeviceSpec> read_device(const std::string& name_or_path, const std::string& data_directory);
// Parses one device object; `file` and `path` (JSON pointer) locate it in error messages.
Expected<DeviceSpec> parse_device(const nlohmann::ordered_json& json, const std::string& file, const std::string& path);
// Names of the shipped devices, sorted.
std::vector<std::string> shipped_devices(const std::string& data_directory);

}  // namespace longhaul
