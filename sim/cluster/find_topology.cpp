#include "sim/cluster/find_topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sim/core/data_files.h"
#include "sim/core/printable.h"

namespace longhaul {
namespace {

// The machine of a GPU's tables that say nothing of their network stands for this one too.
const std::string kReference = "nvlink";

constexpr int kNetworkTechnologies = static_cast<int>(NetworkTechnology::kEthernet) + 1;

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

bool equal(const std::string& a, const std::string& b) { return lower(a) == lower(b); }

bool unstated(const std::string& fabric) { return fabric.empty() || equal(fabric, "unstated"); }

void add_once(std::vector<std::string>& list, std::string name) {
  if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(std::move(name));
}

bool is_technology(const std::string& fabric) {
  for (int i = 0; i < kNetworkTechnologies; ++i) {
    if (equal(fabric, std::string(technology_name(static_cast<NetworkTechnology>(i))))) return true;
  }
  return false;
}

// The machine that stands in for one of `device` over `fabric` (see the header); empty if there is none.
std::string find_stand_in(const MachineQuery& query, const std::string& device, const std::string& data_directory) {
  if (!is_technology(query.fabric)) return "";
  const Expected<DeviceSpec> spec = read_device(device, data_directory);
  std::string reference;
  for (const std::string& name : shipped_topologies(data_directory)) {
    const Expected<Topology> topology = read_topology(name, data_directory);
    if (!spec || !topology || topology->device.generation != spec->generation) continue;
    if (query.gpus_per_node && topology->gpus_per_node != *query.gpus_per_node) continue;
    if (topology->nodes && query.nodes > *topology->nodes) continue;
    for (const std::string& of : topology->stands_for) {
      if (equal(of, query.fabric)) return name;
      if (equal(of, kReference) && topology->device.name == device) reference = name;
    }
  }
  return reference;
}

}  // namespace

Expected<std::string> find_device(const std::string& gpu, const std::string& data_directory, const std::string& file,
                                  const std::string& path) {
  if (const auto missing = missing_data_folder(file, path, data_directory)) return tl::unexpected(Errors{*missing});
  std::vector<std::string> known;
  for (const std::string& name : shipped_devices(data_directory)) {
    const Expected<DeviceSpec> device = read_device(name, data_directory);
    if (!device) return tl::unexpected(device.error());
    if (equal(gpu, name)) return name;
    for (const std::string& alias : device->aliases) {
      if (equal(gpu, alias)) return name;
    }
    known.push_back(name);
    known.insert(known.end(), device->aliases.begin(), device->aliases.end());
  }
  return tl::unexpected(Errors{{file, path, fmt::format("unknown GPU \"{}\"", echoed(gpu)),
                                fmt::format("one of {}", fmt::join(known, ", ")), nearest_name(gpu, known)}});
}

Expected<std::string> find_topology(const MachineQuery& query, const std::string& data_directory,
                                    const std::string& file, const std::string& path, std::string* stand_in) {
  const Expected<std::string> device = find_device(query.gpu, data_directory, file, path + "/gpu");
  if (!device) return tl::unexpected(device.error());
  const bool any = unstated(query.fabric);
  const std::string fabric = any ? kReference : query.fabric;
  // Of the shipped machines with this GPU and so many a node: the fabrics they stand for, and the sizes they come in.
  std::vector<std::string> fabrics, sizes;
  std::string first;  // that holds so many nodes, over whatever fabric
  std::pair<std::string, int> too_small;
  for (const std::string& name : shipped_topologies(data_directory)) {
    const Expected<Topology> topology = read_topology(name, data_directory);
    if (!topology) return tl::unexpected(topology.error());
    if (topology->device.name != *device || topology->stands_for.empty()) continue;
    add_once(sizes, std::to_string(topology->gpus_per_node));
    if (query.gpus_per_node && topology->gpus_per_node != *query.gpus_per_node) continue;
    const bool fits = !topology->nodes || query.nodes <= *topology->nodes;
    if (fits && first.empty()) first = name;
    for (const std::string& of : topology->stands_for) {
      if (fits && equal(of, fabric)) return name;
      if (!fits && (any || equal(of, fabric))) too_small = {name, *topology->nodes};
      add_once(fabrics, of);
    }
  }
  if (any && !first.empty()) return first;
  if (!too_small.first.empty()) {
    return tl::unexpected(Errors{{file, path + "/n_nodes", fmt::format("is {}", query.nodes),
                                  fmt::format("at most {}, all that {} has", too_small.second, too_small.first), ""}});
  }
  if (fabrics.empty() && !sizes.empty()) {
    return tl::unexpected(Errors{{file, path + "/gpus_per_node",
                                  fmt::format("is {}: no such machine with {}", *query.gpus_per_node, *device),
                                  fmt::format("{}, or a topology file", fmt::join(sizes, " or ")), ""}});
  }
  if (const std::string name = find_stand_in(query, *device, data_directory); !name.empty()) {
    if (stand_in != nullptr) {
      *stand_in = fmt::format("no machine of {} over {} ships: {} stands in", *device, lower(query.fabric), name);
    }
    return name;
  }
  return tl::unexpected(Errors{
      {file, path + "/fabric",
       fmt::format("\"{}\" between {} node{} with {}: no such machine ships", echoed(fabric), query.nodes,
                   query.nodes == 1 ? "" : "s", *device),
       fabrics.empty() ? "a topology file" : fmt::format("one of {}, or a topology file", fmt::join(fabrics, ", ")),
       nearest_name(fabric, fabrics)}});
}

}  // namespace longhaul
