#include "sim/cluster/topology.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/cluster/shipped_files.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr double kMinRate = 0.001;
constexpr double kMaxRate = 1e5;
constexpr std::int64_t kMaxNodes = 1 << 20;

std::string topology_folder(const std::string& data_directory) { return data_directory + "/topologies"; }

// The keys that every link class has.
void read_link(JsonReader& reader, LinkClass& link) {
  link.efficiency = reader.required_number("efficiency", 0.01, 1).value_or(1);
  link.latency = Time::from_us(reader.required_number("latency_us", 0, 1e4).value_or(0));
  reader.find("sources");
}

// NVLinks of a GPU where the file does not say: 25 GB/s each one way up to Hopper, 50 on Blackwell.
int usual_nvlinks(const Topology& topology) {
  const double one = topology.device.generation == GpuGeneration::kBlackwell ? 50e9 : 25e9;
  return std::max(1, static_cast<int>(topology.nvlink_rate_per_gpu().value / one + 0.5));
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
  const auto domain = reader.integer("gpus_per_domain", 1, 4096);
  topology.gpus_per_domain = domain ? static_cast<int>(*domain) : topology.gpus_per_node;
  const bool can_multicast =
      topology.node_fabric == NodeFabric::kNvSwitch && topology.device.generation != GpuGeneration::kAmpere;
  topology.nvls = reader.boolean("nvls").value_or(can_multicast);
  // A step crosses a switch over two links: up and down.
  if (topology.node_fabric == NodeFabric::kNvSwitch) {
    topology.nvlink.latency = Time::from_ps(topology.nvlink.latency.ps() / 2);
  }
  reader.finish();
}

// `fabric` is empty where the file's is faulty: then nothing is said about keys that depend on it.
void read_rails(JsonReader& reader, const std::optional<std::string>& fabric, Topology& topology) {
  const bool rails = fabric == "rails";
  const auto leaf =
      rails ? reader.required_integer("nodes_per_leaf", 1, kMaxNodes) : reader.integer("nodes_per_leaf", 1, kMaxNodes);
  const auto over = reader.number("oversubscription", 1, 1000);
  const bool no_rails = fabric && !rails;
  if (no_rails && leaf) reader.add_error("nodes_per_leaf", "has no meaning here", "only with \"fabric\": \"rails\"");
  if (no_rails && over) reader.add_error("oversubscription", "has no meaning here", "only with \"fabric\": \"rails\"");
  topology.nodes_per_leaf = static_cast<int>(leaf.value_or(1));
  topology.oversubscription = over.value_or(1);
}

void read_network(const Json& json, JsonReader& parent, Topology& topology) {
  JsonReader reader(json, parent.file(), parent.child_path("network"), parent.errors());
  const auto fabric = reader.required_choice("fabric", {"rails", "single-switch"});
  topology.network_fabric = fabric == "rails" ? NetworkFabric::kRails : NetworkFabric::kSingleSwitch;
  static const std::vector<std::string> technologies = {"infiniband", "roce", "efa", "tcpx", "tcpxo", "ethernet"};
  const std::string technology = reader.choice("technology", technologies).value_or("infiniband");
  topology.technology = static_cast<NetworkTechnology>(
      std::find(technologies.begin(), technologies.end(), technology) - technologies.begin());
  topology.sharp = reader.boolean("sharp").value_or(false);
  topology.nic.name = "nic";
  topology.nic.scope = LinkScope::kInterNode;
  topology.nics_per_node = static_cast<int>(reader.required_integer("nics_per_node", 1, 256).value_or(1));
  topology.nic.rated =
      BytesPerSecond::from_Gbit_per_s(reader.required_number("nic_gbits_per_s", kMinRate, kMaxRate).value_or(1));
  read_link(reader, topology.nic);
  topology.nic.latency = Time::from_ps(topology.nic.latency.ps() / 2);  // a step leaves one NIC and enters another
  topology.ll_hop = Time::from_us(reader.required_number("nccl_ll_hop_us", 0, 1e4).value_or(0));
  topology.simple_hop = Time::from_us(reader.required_number("nccl_simple_hop_us", 0, 1e4).value_or(0));
  read_rails(reader, fabric, topology);
  const int gpus = topology.gpus_per_node;
  if (gpus > 0 && gpus % topology.nics_per_node != 0) {
    reader.add_error("nics_per_node", fmt::format("is {}", topology.nics_per_node),
                     fmt::format("a divisor of gpus_per_node, {}", gpus));
  }
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

void read_device_key(JsonReader& reader, const std::string& data_directory, Topology& topology) {
  const Json* value = reader.required("device", "a device name, a path or an object");
  if (value == nullptr) return;
  const auto take = [&](Expected<DeviceSpec> device) {
    if (device) {
      topology.device = *device;
    } else {
      reader.errors().insert(reader.errors().end(), device.error().begin(), device.error().end());
    }
  };
  if (value->is_object()) return take(parse_device(*value, reader.file(), reader.child_path("device")));
  if (!value->is_string()) {
    return reader.add_error("device", fmt::format("is {}", describe(*value)), "a device name, a path or an object");
  }
  const std::string name = value->get<std::string>();
  const auto file = find_shipped("device", name, topology_folder(data_directory) + "/devices", reader.file(),
                                 reader.child_path("device"));
  if (file) return take(read_device(*file, data_directory));
  reader.errors().insert(reader.errors().end(), file.error().begin(), file.error().end());
}

void scale(JsonReader& reader, Topology& topology) {
  const double nvlink = reader.number("scale_nvlink", 0.001, 1000).value_or(1);
  const double network = reader.number("scale_network", 0.001, 1000).value_or(1);
  topology.nvlink.rated.value *= nvlink;
  topology.nic.rated.value *= network;
  if (topology.pcie) topology.pcie->rated.value *= network;
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
  scale(reader, topology);
  const auto cpu = reader.choice("cpu", {"intel", "amd", "grace"}).value_or("intel");
  topology.cpu = cpu == "amd" ? HostCpu::kAmd : cpu == "grace" ? HostCpu::kGrace : HostCpu::kIntel;
  reader.find("sources");
  reader.finish();
  if (!errors.empty()) return tl::unexpected(errors);
  return topology;
}

// {"base": NAME, ...}: the base's file with the other keys merged into it.
Expected<Topology> parse_patched(const Json& json, const std::string& file, const std::string& path,
                                 const std::string& data_directory) {
  const Json& base = json.at("base");
  if (!base.is_string()) {
    return tl::unexpected(
        Errors{{file, path + "/base", fmt::format("is {}", describe(base)), "a topology name or path", ""}});
  }
  const auto base_file =
      find_shipped("topology", base.get<std::string>(), topology_folder(data_directory), file, path + "/base");
  if (!base_file) return tl::unexpected(base_file.error());
  const Expected<Json> base_json = read_json_file(*base_file);
  if (!base_json) return tl::unexpected(base_json.error());
  const Expected<Topology> checked = parse_whole(*base_json, *base_file, "", data_directory);
  if (!checked) return tl::unexpected(checked.error());
  Json patched = *base_json;
  Json patch = json;
  patch.erase("base");
  patched.merge_patch(patch);
  return parse_whole(patched, file, path, data_directory);
}

}  // namespace

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

Expected<Topology> parse_topology(const Json& json, const std::string& file, const std::string& path,
                                  const std::string& data_directory) {
  if (json.is_object() && json.contains("base")) return parse_patched(json, file, path, data_directory);
  if (json.is_object()) return parse_whole(json, file, path, data_directory);
  if (!json.is_string()) {
    return tl::unexpected(
        Errors{{file, path, fmt::format("is {}", describe(json)), "a topology name, a path, or an object", ""}});
  }
  const auto found = find_shipped("topology", json.get<std::string>(), topology_folder(data_directory), file, path);
  if (!found) return tl::unexpected(found.error());
  const Expected<Json> value = read_json_file(*found);
  if (!value) return tl::unexpected(value.error());
  if (value->is_object() && value->contains("base")) return parse_patched(*value, *found, "", data_directory);
  return parse_whole(*value, *found, "", data_directory);
}

Expected<Topology> read_topology(const std::string& name_or_path, const std::string& data_directory) {
  return parse_topology(Json(name_or_path), name_or_path, "", data_directory);
}

std::vector<std::string> shipped_topologies(const std::string& data_directory) {
  return shipped_names(topology_folder(data_directory));
}

}  // namespace longhaul
