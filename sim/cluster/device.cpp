#include "sim/cluster/device.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/data_files.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxBytes = 1'099'511'627'776'000;  // 1000 TiB

GpuGeneration generation_of(const std::string& name) {
  if (name == "ampere") return GpuGeneration::kAmpere;
  if (name == "hopper") return GpuGeneration::kHopper;
  return name == "cdna4" ? GpuGeneration::kCdna4 : GpuGeneration::kBlackwell;
}

}  // namespace

Expected<DeviceSpec> parse_device(const Json& json, const std::string& file, const std::string& path) {
  Errors errors;
  JsonReader reader(json, file, path, errors);
  DeviceSpec device;
  reader.required_choice("schema", {"device/1"});
  device.name = reader.required_string("name").value_or("");
  reader.string("description");
  const auto generation = reader.required_choice("generation", {"ampere", "hopper", "blackwell", "cdna4"});
  if (generation) device.generation = generation_of(*generation);
  const auto memory = reader.required_integer("memory_bytes", 1 << 20, kMaxBytes);
  const auto reserved = reader.required_integer("reserved_bytes", 0, kMaxBytes);
  device.memory.value = memory.value_or(0);
  device.reserved.value = reserved.value_or(0);
  device.bf16_dense.value = reader.required_number("bf16_dense_tflops", 0.001, 1e6).value_or(0) * 1e12;
  device.memory_bandwidth =
      BytesPerSecond::from_GBps(reader.required_number("memory_bandwidth_gbytes_per_s", 0.001, 1e6).value_or(0));
  device.multiprocessors = static_cast<int>(reader.required_integer("multiprocessors", 1, 100'000).value_or(0));
  device.host_link =
      BytesPerSecond::from_GBps(reader.required_number("host_link_gbytes_per_s", 0.001, 1e5).value_or(0));
  if (const Json* aliases = reader.find("aliases")) {
    const auto is_name = [](const Json& name) { return name.is_string(); };
    if (!aliases->is_array() || !std::all_of(aliases->begin(), aliases->end(), is_name)) {
      reader.add_error("aliases", fmt::format("is {}", describe(*aliases)), "a list of names");
    } else {
      for (const Json& name : *aliases) device.aliases.push_back(name.get<std::string>());
    }
  }
  reader.find("sources");
  if (memory && reserved && *reserved >= *memory) {
    reader.add_error("reserved_bytes", fmt::format("is {}", *reserved),
                     fmt::format("less than memory_bytes, {}", *memory));
  }
  reader.finish();
  if (!errors.empty()) return tl::unexpected(errors);
  return device;
}

Expected<DeviceSpec> read_device(const std::string& name_or_path, const std::string& data_directory) {
  std::string file = name_or_path;
  if (!is_data_path(DataKind::kDevice, name_or_path)) {
    Errors errors;
    const auto found = resolve_data_file(DataKind::kDevice, name_or_path, name_or_path, "", errors, data_directory);
    if (!found) return tl::unexpected(errors);
    file = *found;
  }
  const Expected<Json> json = read_json_file(file);
  if (!json) return tl::unexpected(json.error());
  return parse_device(*json, file, "");
}

std::vector<std::string> shipped_devices(const std::string& data_directory) {
  return list_data_names(DataKind::kDevice, data_directory);
}

}  // namespace longhaul
