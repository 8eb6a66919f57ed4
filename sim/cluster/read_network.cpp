#include <fmt/format.h>

#include <algorithm>

#include "sim/cluster/link_layout.h"
#include "sim/cluster/read_links.h"

namespace longhaul {
namespace {

constexpr int kMaxRadix = 65'536;

Time whole(std::optional<double> us) { return Time::from_us(us.value_or(0)); }

// Keys that mean something only where `where` says. `known`: the fabric is no faulty one, of which nothing can be said.
class OnlyWith {
 public:
  OnlyWith(JsonReader& reader, bool applies, bool known, const char* where)
      : reader_(reader), refuses_(known && !applies), where_(where) {}
  std::optional<double> number(const char* key, double low, double high) {
    return checked(key, reader_.number(key, low, high));
  }
  std::optional<std::int64_t> integer(const char* key, std::int64_t low, std::int64_t high) {
    return checked(key, reader_.integer(key, low, high));
  }

 private:
  template <class T>
  std::optional<T> checked(const char* key, std::optional<T> value) {
    if (refuses_ && value) reader_.add_error(key, "has no meaning here", where_);
    return value;
  }
  JsonReader& reader_;
  bool refuses_;
  const char* where_;
};

std::optional<int> as_int(std::optional<std::int64_t> value) {
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

// `fabric` is empty where the file's is faulty: then nothing is said about keys that depend on it.
void read_levels(JsonReader& reader, const std::optional<std::string>& fabric, Topology& topology) {
  const bool leaves = fabric == "rails" || fabric == "fat-tree";
  OnlyWith in_tree(reader, leaves, fabric.has_value(), "only with \"fabric\": \"rails\" or \"fat-tree\"");
  const auto leaf = leaves ? reader.required_integer("nodes_per_leaf", 1, kMaxNodes)
                           : in_tree.integer("nodes_per_leaf", 1, kMaxNodes);
  topology.nodes_per_leaf = static_cast<int>(leaf.value_or(1));
  topology.oversubscription = in_tree.number("oversubscription", 1, 1000).value_or(1);
  topology.spine_latency = whole(in_tree.number("spine_latency_us", 0, 1e4));
  topology.spine_radix = as_int(in_tree.integer("spine_radix", 2, kMaxRadix));
  topology.leaf_radix = as_int(reader.integer("leaf_radix", 2, kMaxRadix));
  const auto pod = in_tree.integer("leaves_per_pod", 1, kMaxNodes);
  topology.leaves_per_pod = static_cast<int>(pod.value_or(0));
  OnlyWith with_pods(reader, pod.has_value(), !reader.has("leaves_per_pod"),
                     "only with \"leaves_per_pod\", in a tree of three levels");
  topology.spine_oversubscription = with_pods.number("spine_oversubscription", 1, 1000).value_or(1);
  topology.core_latency = whole(with_pods.number("core_latency_us", 0, 1e4));
  const auto routing = reader.choice("routing", {"spread", "hash"});
  topology.routing = routing == "hash" ? Routing::kHash : Routing::kSpread;
  topology.spines = as_int(in_tree.integer("spines", 1, 4096));
}

// More ports than a switch has. `errors_before`: nothing is said of a fabric with other faults.
void check_ports(JsonReader& reader, const Topology& topology, std::size_t errors_before) {
  if (reader.errors().size() > errors_before || !topology.leaves()) return;
  const bool rails = topology.network_fabric == NetworkFabric::kRails;
  const int down = topology.nodes_per_leaf * (rails ? 1 : topology.nics_per_node);
  const int up = leaf_uplinks(topology);
  if (topology.spines && *topology.spines > up) {
    reader.add_error("spines", fmt::format("is {}", *topology.spines),
                     fmt::format("at most {}, the uplinks of a leaf at the rate of a NIC", up));
  }
  if (topology.leaf_radix && down + up > *topology.leaf_radix) {
    reader.add_error(
        "nodes_per_leaf", fmt::format("is {}: {} ports down and {} up", topology.nodes_per_leaf, down, up),
        fmt::format("at most leaf_radix, {}, together: fewer nodes, or more oversubscription", *topology.leaf_radix));
  }
  if (topology.leaves_per_pod == 0 || !topology.spine_radix) return;
  const int spines = std::min(topology.spines.value_or(up), up);
  const int from_leaves = topology.leaves_per_pod * (rails ? topology.nics_per_node : 1) * ((up + spines - 1) / spines);
  const int to_core = spine_uplinks(topology);
  if (from_leaves + to_core > *topology.spine_radix) {
    reader.add_error(
        "leaves_per_pod", fmt::format("is {}: {} ports down and {} up", topology.leaves_per_pod, from_leaves, to_core),
        fmt::format("at most spine_radix, {}, together: fewer leaves, more spines, or more oversubscription",
                    *topology.spine_radix));
  }
}

}  // namespace

void read_network(const Json& json, JsonReader& parent, Topology& topology) {
  JsonReader reader(json, parent.file(), parent.child_path("network"), parent.errors());
  const std::size_t before = parent.errors().size();
  const auto fabric = reader.required_choice("fabric", {"rails", "fat-tree", "single-switch"});
  topology.network_fabric = fabric == "rails"      ? NetworkFabric::kRails
                            : fabric == "fat-tree" ? NetworkFabric::kFatTree
                                                   : NetworkFabric::kSingleSwitch;
  static const std::vector<std::string> technologies = {"infiniband", "roce", "efa", "tcpx", "tcpxo", "ethernet"};
  const std::string technology = reader.choice("technology", technologies).value_or("infiniband");
  topology.technology = static_cast<NetworkTechnology>(std::find(technologies.begin(), technologies.end(), technology) -
                                                       technologies.begin());
  topology.sharp = reader.boolean("sharp").value_or(false);
  if (topology.sharp && technology != "infiniband") {
    reader.add_error("sharp", "is true", "only with \"technology\": \"infiniband\"");
  }
  topology.nic.name = "nic";
  topology.nic.scope = LinkScope::kInterNode;
  topology.nics_per_node = static_cast<int>(reader.required_integer("nics_per_node", 1, 256).value_or(1));
  topology.nic.rated =
      BytesPerSecond::from_Gbit_per_s(reader.required_number("nic_gbits_per_s", kMinRate, kMaxRate).value_or(1));
  read_link(reader, topology.nic);
  topology.nic.latency = Time::from_ps(topology.nic.latency.ps() / 2);  // a step leaves one NIC and enters another
  read_levels(reader, fabric, topology);
  const int gpus = topology.gpus_per_node;
  if (gpus > 0 && gpus % topology.nics_per_node != 0 && topology.nics_per_node % gpus != 0) {
    reader.add_error("nics_per_node", fmt::format("is {}", topology.nics_per_node),
                     fmt::format("a divisor or a multiple of gpus_per_node, {}", gpus));
  }
  check_ports(reader, topology, before);
  reader.finish();
}

}  // namespace longhaul
