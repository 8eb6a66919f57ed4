#include "sim/cluster/graph_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/cluster/graph_routes.h"
#include "sim/cluster/pair_graph.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxReported = 8;
constexpr int kMaxParallel = 1024;

const std::vector<std::string> kKinds = {"gpu", "nvswitch", "pcie-switch", "nic", "leaf", "spine", "core"};

bool is_switch(VertexKind kind) { return kind != VertexKind::kGpu && kind != VertexKind::kNic; }

class GraphReader {
 public:
  GraphReader(const Json& json, const std::string& file, const std::string& path, const GraphDefaults& defaults,
              Errors& errors)
      : reader_(json, file, path, errors), defaults_(defaults) {}

  GraphSpec read() {
    const std::size_t before = reader_.errors().size();
    if (const Json* list = list_of("vertices")) {
      for (std::size_t i = 0; i < list->size(); ++i) add_vertex((*list)[i], fmt::format("vertices/{}", i));
    }
    if (const Json* list = list_of("links")) {
      for (std::size_t i = 0; i < list->size(); ++i) add_link((*list)[i], fmt::format("links/{}", i));
    }
    reader_.finish();
    check_size();
    check_ports();
    if (reader_.errors().size() == before) check_ways();
    return std::move(graph_);
  }

 private:
  const Json* list_of(const char* key) {
    const Json* list = reader_.required(key, "a list");
    if (list == nullptr || list->is_array()) return list;
    reader_.add_error(key, fmt::format("is {}", describe(*list)), "a list");
    return nullptr;
  }

  void add_vertex(const Json& json, const std::string& where) {
    JsonReader reader(json, reader_.file(), reader_.path() + "/" + where, reader_.errors());
    const auto name = reader.required_string("name");
    const auto kind = reader.required_choice("kind", kKinds);
    const auto radix = reader.integer("radix", 1, 4096);
    reader.finish();
    if (!name || !kind) return;
    GraphVertex vertex{*name, static_cast<VertexKind>(std::find(kKinds.begin(), kKinds.end(), *kind) - kKinds.begin())};
    const auto number = static_cast<int>(graph_.vertices.size());
    if (!numbers_.try_emplace(*name, number).second) {
      return reader.add_error("name", fmt::format("\"{}\" is the name of another vertex", *name), "a name of its own");
    }
    if (radix && !is_switch(vertex.kind)) {
      reader.add_error("radix", "has no meaning here", "only with a switch: nvswitch, pcie-switch, leaf, spine, core");
    }
    if (radix) radix_[number] = {static_cast<int>(*radix), reader.path()};
    if (vertex.kind == VertexKind::kGpu) graph_.gpus.push_back(number);
    graph_.vertices.push_back(std::move(vertex));
    names_.push_back(*name);
  }

  std::optional<int> end_of(JsonReader& reader, const char* key) {
    const auto name = reader.required_string(key);
    if (!name) return std::nullopt;
    const auto found = numbers_.find(*name);
    if (found != numbers_.end()) return found->second;
    reader.add_error(key, fmt::format("\"{}\" is no vertex", *name), "the name of a vertex",
                     nearest_name(*name, names_));
    return std::nullopt;
  }

  // A link of a class, with the link's own values over those of the class.
  LinkClass class_of(JsonReader& reader) {
    const auto name = reader.required_choice("class", {"nvlink", "pcie", "nic", "leaf", "spine"}).value_or("nic");
    LinkClass link = name == "nvlink" ? defaults_.nvlink : defaults_.nic;
    if (name == "pcie") link = defaults_.pcie.value_or(LinkClass{});
    link.name = name;
    const auto rate = reader.number("gbytes_per_s", 0.001, 1e5);
    if (rate) {
      const double scale = name == "nvlink" ? defaults_.scale_nvlink : defaults_.scale_network;
      link.rated = BytesPerSecond::from_GBps(*rate * scale);
    }
    if (!reader.has("gbytes_per_s") && name == "pcie" && !defaults_.pcie) {
      reader.add_error("gbytes_per_s", "is missing",
                       "a rate: the topology has no link of class \"pcie\" to take it from");
    }
    link.efficiency = reader.number("efficiency", 0.01, 1).value_or(link.efficiency);
    if (const auto latency = reader.number("latency_us", 0, 1e4)) link.latency = Time::from_us(*latency);
    return link;
  }

  void add_link(const Json& json, const std::string& where) {
    JsonReader reader(json, reader_.file(), reader_.path() + "/" + where, reader_.errors());
    const auto from = end_of(reader, "from");
    const auto to = end_of(reader, "to");
    LinkClass link = class_of(reader);
    const int count = static_cast<int>(reader.integer("count", 1, kMaxParallel).value_or(1));
    const bool one_way = reader.boolean("one_way").value_or(false);
    reader.find("sources");
    reader.finish();
    if (!from || !to) return;
    if (*from == *to) return reader.add_error("to", "is where the link comes from", "another vertex");
    for (const int end : {*from, *to}) ports_[end] += count;
    const std::string base = name_of(*from, *to);
    for (const auto& [source, target] : {std::pair(*from, *to), std::pair(*to, *from)}) {
      if (one_way && source == *to) continue;
      const auto [pair, is_new] = pairs_.try_emplace({source, target}, reader.path());
      if (is_new) continue;
      reader.errors().push_back({reader.file(), reader.path(), fmt::format("joins {} again", base),
                                 fmt::format("one entry for both, with \"count\"; {} is the other", pair->second), ""});
      return;
    }
    if (defaults_.bundled) link.rated.value *= count;
    for (int i = 0; i < (defaults_.bundled ? 1 : count); ++i) {
      const std::string name = i == 0 ? base : fmt::format("{}#{}", base, i);
      graph_.links.push_back({*from, *to, link, name + ">"});
      if (!one_way) graph_.links.push_back({*to, *from, link, name + "<"});
    }
  }

  std::string name_of(int from, int to) const {
    return names_[static_cast<std::size_t>(from)] + "." + names_[static_cast<std::size_t>(to)];
  }

  void check_size() {
    const auto gpus = static_cast<int>(graph_.gpus.size());
    if (gpus == 0) reader_.add_error("vertices", "hold no GPU", "one vertex of kind \"gpu\" or more");
    if (gpus > kMaxGraphGpus || static_cast<int>(graph_.vertices.size()) > kMaxGraphVertices) {
      reader_.add_error(
          "vertices", fmt::format("are {} with {} GPUs", graph_.vertices.size(), gpus),
          fmt::format("at most {} vertices and {} GPUs; larger machines as nodes with rails or a fat tree",
                      kMaxGraphVertices, kMaxGraphGpus));
    }
    const int node = defaults_.gpus_per_node;
    if (node > 0 && gpus % node != 0) {
      reader_.add_error("vertices", fmt::format("hold {} GPUs", gpus),
                        fmt::format("a multiple of gpus_per_node, {}", node));
    }
  }

  void check_ports() {
    for (const auto& [vertex, radix] : radix_) {
      if (ports_[vertex] <= radix.first) continue;
      reader_.errors().push_back({reader_.file(), radix.second + "/radix", fmt::format("is {}", radix.first),
                                  fmt::format("at least {}, the links on {}, or fewer links", ports_[vertex],
                                              names_[static_cast<std::size_t>(vertex)]),
                                  ""});
    }
  }

  void check_ways() {
    const GraphRoutes routes(graph_, std::vector<bool>(graph_.links.size()));
    const auto gpus = static_cast<int>(graph_.gpus.size());
    const std::size_t before = reader_.errors().size();
    const auto name = [&](int rank) {
      return graph_.vertices[static_cast<std::size_t>(graph_.gpus[static_cast<std::size_t>(rank)])].name;
    };
    for (int from = 0; from < gpus && reader_.errors().size() - before < kMaxReported; ++from) {
      for (int to = 0; to < gpus; ++to) {
        const auto route = routes.route(from, to, 0);
        if (route && route->size() <= kMaxHops) continue;
        reader_.add_error(
            "links",
            route ? fmt::format("make a route of {} links from {} to {}", route->size(), name(from), name(to))
                  : fmt::format("leave no way from {} to {}", name(from), name(to)),
            route ? fmt::format("at most {}", kMaxHops) : "a graph in which every GPU reaches every other");
        break;
      }
    }
  }

  JsonReader reader_;
  const GraphDefaults& defaults_;
  GraphSpec graph_;
  std::map<std::string, int> numbers_;
  std::vector<std::string> names_;
  std::map<int, std::pair<int, std::string>> radix_;  // by vertex: ports, path
  std::map<int, int> ports_;                          // links on each vertex
  std::map<std::pair<int, int>, std::string> pairs_;  // directed: path of the entry
};

}  // namespace

GraphSpec parse_graph(const Json& json, const std::string& file, const std::string& path, const GraphDefaults& defaults,
                      Errors& errors) {
  return GraphReader(json, file, path, defaults, errors).read();
}

}  // namespace longhaul
