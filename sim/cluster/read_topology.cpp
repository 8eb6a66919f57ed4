#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/cluster/read_links.h"
#include "sim/cluster/topology.h"
#include "sim/core/data_files.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

// NVLinks of a GPU where the file does not say: 25 GB/s each one way up to Hopper, 50 on Blackwell.
int usual_nvlinks(const Topology& topology) {
  const double one = topology.device.generation == GpuGeneration::kBlackwell ? 50e9 : 25e9;
  return std::max(1, static_cast<int>(topology.nvlink_rate_per_gpu().value / one + 0.5));
}

// The second level of a domain's NVSwitches.
void read_second_level(JsonReader& parent, Topology& topology) {
  const Json* json = parent.find("second_level");
  if (json == nullptr) return;
  JsonReader reader(*json, parent.file(), parent.child_path("second_level"), parent.errors());
  LinkClass link = topology.nvlink;
  link.name = "nvswitch";
  link.rated = BytesPerSecond::from_GBps(reader.required_number("gbytes_per_s", kMinRate, kMaxRate).value_or(1));
  link.latency = Time::from_ps(Time::from_us(reader.required_number("latency_us", 0, 1e4).value_or(0)).ps() / 2);
  reader.find("sources");
  reader.finish();
  topology.nvswitch = link;
  if (topology.domain_gpus() <= topology.gpus_per_node) {
    parent.add_error("second_level", "has no meaning here", "only with a \"gpus_per_domain\" of several nodes");
  }
}

void read_domain(JsonReader& reader, Topology& topology) {
  const auto domain = reader.integer("gpus_per_domain", 1, 4096);
  topology.gpus_per_domain = static_cast<int>(domain.value_or(0));
  const int node = topology.gpus_per_node;
  if (domain && node > 0 && *domain % node != 0) {
    reader.add_error("gpus_per_domain", fmt::format("is {}", *domain),
                     fmt::format("a multiple of gpus_per_node, {}", node));
  }
  if (domain && *domain > node && topology.node_fabric == NodeFabric::kPairs) {
    reader.add_error("gpus_per_domain", fmt::format("is {}", *domain),
                     "gpus_per_node: direct links join no GPUs of other nodes");
  }
  read_second_level(reader, topology);
}

void read_device_key(JsonReader& reader, const std::string& data_directory, Topology& topology) {
  const Json* value = reader.required("device", "a device name, a path or an object");
  if (value == nullptr) return;
  const auto take = [&](Expected<DeviceSpec> device) {
    if (device) {
      topology.device = *device;
    } else {
      append(reader.errors(), device.error());
    }
  };
  const std::string path = reader.child_path("device");
  if (value->is_object()) return take(parse_device(*value, reader.file(), path));
  if (!value->is_string()) {
    return reader.add_error("device", fmt::format("is {}", describe(*value)), "a device name, a path or an object");
  }
  const auto file = resolve_data_file(DataKind::kDevice, value->get<std::string>(), reader.file(), path,
                                      reader.errors(), data_directory);
  if (file) take(read_device(*file, data_directory));
}

void read_stands_for(JsonReader& reader, Topology& topology) {
  const Json* list = reader.find("stands_for");
  if (list == nullptr) return;
  const auto is_name = [](const Json& name) { return name.is_string() && !name.get<std::string>().empty(); };
  if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_name)) {
    return reader.add_error("stands_for", fmt::format("is {}", describe(*list)), "a list of fabrics' names");
  }
  for (const Json& name : *list) topology.stands_for.push_back(name.get<std::string>());
}

struct Scales {
  double nvlink = 1;
  double network = 1;
};

Scales scale(JsonReader& reader, Topology& topology) {
  const Scales scales{reader.number("scale_nvlink", 0.001, 1000).value_or(1),
                      reader.number("scale_network", 0.001, 1000).value_or(1)};
  topology.nvlink.rated.value *= scales.nvlink;
  if (topology.nvswitch) topology.nvswitch->rated.value *= scales.nvlink;
  topology.nic.rated.value *= scales.network;
  if (topology.pcie) topology.pcie->rated.value *= scales.network;
  return scales;
}

// Where the classes that its links take values from are faulty, they are harmless: the graph's own faults are told too.
void read_graph(JsonReader& reader, const Scales& scales, Topology& topology) {
  const Json* graph = reader.find("graph");
  if (graph == nullptr) return;
  const std::size_t before = reader.errors().size();
  const GraphDefaults defaults{
      topology.nvlink,        topology.nic,  topology.pcie, topology.routing == Routing::kSpread,
      topology.gpus_per_node, scales.nvlink, scales.network};
  topology.graph = parse_graph(*graph, reader.file(), reader.child_path("graph"), defaults, reader.errors());
  if (reader.errors().size() > before || topology.gpus_per_node == 0) return;
  const int nodes = static_cast<int>(topology.graph->gpus.size()) / std::max(1, topology.gpus_per_node);
  if (topology.nodes && *topology.nodes != nodes) {
    reader.add_error("nodes", fmt::format("is {}", *topology.nodes), fmt::format("{}, as the graph has", nodes));
  }
  topology.nodes = nodes;
}

Expected<Topology> parse_whole(const Json& json, const std::string& file, const std::string& path,
                               const std::string& data_directory) {
  Errors errors;
  JsonReader reader(json, file, path, errors);
  Topology topology;
  reader.required_choice("schema", {"topology/1"});
  topology.name = reader.required_string("name").value_or("");
  topology.description = reader.string("description").value_or("");
  read_device_key(reader, data_directory, topology);
  topology.gpus_per_node = static_cast<int>(reader.required_integer("gpus_per_node", 1, 256).value_or(0));
  if (const auto nodes = reader.integer("nodes", 1, kMaxNodes)) topology.nodes = static_cast<int>(*nodes);
  if (const Json* nvlink = reader.required("nvlink", "an object")) read_nvlink(*nvlink, reader, topology);
  if (const Json* network = reader.required("network", "an object")) read_network(*network, reader, topology);
  if (const Json* pcie = reader.find("pcie")) read_pcie(*pcie, reader, topology);
  const Scales scales = scale(reader, topology);
  const auto cpu = reader.choice("cpu", {"intel", "amd", "grace"}).value_or("intel");
  topology.cpu = cpu == "amd" ? HostCpu::kAmd : cpu == "grace" ? HostCpu::kGrace : HostCpu::kIntel;
  read_stands_for(reader, topology);
  read_graph(reader, scales, topology);
  if (const Json* what_ifs = reader.find("what_if")) {
    topology.what_ifs = parse_what_ifs(*what_ifs, file, reader.child_path("what_if"), errors);
  }
  reader.find("sources");
  reader.finish();
  if (!errors.empty()) return tl::unexpected(errors);
  return topology;
}

// The file and the object in it that hold the what-ifs of a topology with bases.
struct Place {
  std::string file;
  std::string path;
};

// {"base": NAME, ...}: the base's file, which may have a base itself, with the other keys merged into it. The base must
// be right by itself. `what_ifs`: whose list the result has.
Expected<Json> merged(const Json& json, const std::string& file, const std::string& path,
                      const std::string& data_directory, Place& what_ifs, int depth = 0) {
  constexpr int kMaxBases = 8;
  const Json& base = json.at("base");
  const auto refuse = [&](std::string message, std::string expected) {
    return tl::unexpected(Errors{{file, path + "/base", std::move(message), std::move(expected), ""}});
  };
  if (!base.is_string()) return refuse(fmt::format("is {}", describe(base)), "a topology name or path");
  if (depth == kMaxBases) return refuse("has a base, and so on", fmt::format("at most {} bases in a row", kMaxBases));
  Errors errors;
  const auto base_file =
      resolve_data_file(DataKind::kTopology, base.get<std::string>(), file, path + "/base", errors, data_directory);
  if (!base_file) return tl::unexpected(errors);
  what_ifs = {*base_file, ""};
  Expected<Json> patched = read_json_file(*base_file);
  if (patched && patched->is_object() && patched->contains("base")) {
    patched = merged(*patched, *base_file, "", data_directory, what_ifs, depth + 1);
  }
  if (!patched) return patched;
  const Expected<Topology> checked = parse_whole(*patched, *base_file, "", data_directory);
  if (!checked) return tl::unexpected(checked.error());
  // A path of the base is seen from the base's folder.
  Json& device = (*patched)["device"];
  if (device.is_string() && is_data_path(DataKind::kDevice, device.get<std::string>())) {
    device = std::filesystem::absolute(relative_to_file(device.get<std::string>(), *base_file)).string();
  }
  if (json.contains("what_if")) what_ifs = {file, path};
  Json patch = json;
  patch.erase("base");
  patched->merge_patch(patch);
  return patched;
}

Expected<Topology> parse_object(const Json& json, const std::string& file, const std::string& path,
                                const std::string& data_directory) {
  if (!json.is_object() || !json.contains("base")) return parse_whole(json, file, path, data_directory);
  Place place;
  const Expected<Json> patched = merged(json, file, path, data_directory, place);
  if (!patched) return tl::unexpected(patched.error());
  Expected<Topology> topology = parse_whole(*patched, file, path, data_directory);
  if (!topology) return topology;
  for (std::size_t i = 0; i < topology->what_ifs.size(); ++i) {
    topology->what_ifs[i].file = place.file;
    topology->what_ifs[i].path = fmt::format("{}/what_if/{}", place.path, i);
  }
  return topology;
}

Expected<Topology> read_file(const std::string& file, const std::string& data_directory) {
  const Expected<Json> value = read_json_file(file);
  if (!value) return tl::unexpected(value.error());
  return parse_object(*value, file, "", data_directory);
}

}  // namespace

void read_link(JsonReader& reader, LinkClass& link) {
  link.efficiency = reader.required_number("efficiency", 0.01, 1).value_or(1);
  link.latency = Time::from_us(reader.required_number("latency_us", 0, 1e4).value_or(0));
  reader.find("sources");
}

void read_nvlink(const Json& json, JsonReader& parent, Topology& topology) {
  JsonReader reader(json, parent.file(), parent.child_path("nvlink"), parent.errors());
  const auto fabric = reader.required_choice("fabric", {"nvswitch", "pairs"});
  topology.node_fabric = fabric == "pairs" ? NodeFabric::kPairs : NodeFabric::kNvSwitch;
  topology.nvlink.name = "nvlink";
  topology.nvlink.rated =
      BytesPerSecond::from_GBps(reader.required_number("gbytes_per_s", kMinRate, kMaxRate).value_or(1));
  read_link(reader, topology.nvlink);
  const auto links = reader.integer("links", 1, 256);
  topology.nvlink_links = links ? static_cast<int>(*links) : usual_nvlinks(topology);
  const bool can_multicast =
      topology.node_fabric == NodeFabric::kNvSwitch && topology.device.generation != GpuGeneration::kAmpere;
  const auto nvls = reader.boolean("nvls");
  topology.nvls = nvls.value_or(can_multicast);
  if (nvls == true && !can_multicast && fabric && topology.gpus_per_node > 0) {
    reader.add_error("nvls", "is true", "only with an NVSwitch and GPUs from Hopper on");
  }
  // A step crosses a switch over two links: up and down.
  if (topology.node_fabric == NodeFabric::kNvSwitch) {
    topology.nvlink.latency = Time::from_ps(topology.nvlink.latency.ps() / 2);
  }
  read_domain(reader, topology);
  reader.finish();
}

void read_pcie(const Json& json, JsonReader& parent, Topology& topology) {
  JsonReader reader(json, parent.file(), parent.child_path("pcie"), parent.errors());
  LinkClass pcie;
  pcie.name = "pcie";
  pcie.rated = BytesPerSecond::from_GBps(reader.required_number("gbytes_per_s", kMinRate, kMaxRate).value_or(1));
  read_link(reader, pcie);
  reader.finish();
  topology.pcie = pcie;
}

Expected<Topology> parse_topology(const Json& json, const std::string& file, const std::string& path,
                                  const std::string& data_directory) {
  if (json.is_object()) return parse_object(json, file, path, data_directory);
  if (!json.is_string()) {
    return tl::unexpected(
        Errors{{file, path, fmt::format("is {}", describe(json)), "a topology name, a path, or an object", ""}});
  }
  Errors errors;
  const auto found =
      resolve_data_file(DataKind::kTopology, json.get<std::string>(), file, path, errors, data_directory);
  if (!found) return tl::unexpected(errors);
  return read_file(*found, data_directory);
}

Expected<Topology> read_topology(const std::string& name_or_path, const std::string& data_directory) {
  if (is_data_path(DataKind::kTopology, name_or_path)) return read_file(name_or_path, data_directory);
  return parse_topology(Json(name_or_path), name_or_path, "", data_directory);
}

std::vector<std::string> shipped_topologies(const std::string& data_directory) {
  return list_data_names(DataKind::kTopology, data_directory);
}

}  // namespace longhaul
