#include "sim/cluster/graph_routes.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <limits>

namespace longhaul {
namespace {

constexpr std::int64_t kUnreached = std::numeric_limits<std::int64_t>::max();

// As in pair_graph.cpp: rails first.
std::int64_t cost_of(const std::string& link_class) {
  if (link_class == "nvlink") return 1;
  if (link_class == "pcie") return 2;
  return link_class == "nic" ? 8 : 16;
}

}  // namespace

GraphRoutes::GraphRoutes(const GraphSpec& graph, const std::vector<bool>& down)
    : vertices_(graph.vertices.size()), gpus_(graph.gpus), first_in_(vertices_ + 1) {
  using Weight = boost::property<boost::edge_weight_t, std::int64_t>;
  boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Weight> shape(vertices_);
  const auto is_up = [&](std::size_t link) { return !down[link]; };
  for (std::size_t link = 0; link < graph.links.size(); ++link) {
    if (!is_up(link)) continue;
    const GraphLink& of = graph.links[link];
    boost::add_edge(static_cast<std::size_t>(of.from), static_cast<std::size_t>(of.to), cost_of(of.link_class.name),
                    shape);
    ++first_in_[static_cast<std::size_t>(of.to) + 1];
  }
  for (std::size_t vertex = 0; vertex < vertices_; ++vertex) first_in_[vertex + 1] += first_in_[vertex];
  in_.resize(static_cast<std::size_t>(first_in_.back()));
  std::vector<std::int32_t> next = first_in_;
  for (std::size_t link = 0; link < graph.links.size(); ++link) {
    if (!is_up(link)) continue;
    const GraphLink& of = graph.links[link];
    in_[static_cast<std::size_t>(next[static_cast<std::size_t>(of.to)]++)] = {static_cast<std::int32_t>(link), of.from,
                                                                              cost_of(of.link_class.name)};
  }
  distances_.resize(gpus_.size() * vertices_);
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    boost::dijkstra_shortest_paths(shape, static_cast<std::size_t>(gpus_[gpu]),
                                   boost::distance_map(distances_.data() + gpu * vertices_).distance_inf(kUnreached));
  }
}

std::optional<std::vector<std::int32_t>> GraphRoutes::route(int from, int to, std::uint64_t choice) const {
  const std::int64_t* distance = distances_.data() + static_cast<std::size_t>(from) * vertices_;
  const auto source = static_cast<std::int32_t>(gpus_[static_cast<std::size_t>(from)]);
  auto vertex = static_cast<std::int32_t>(gpus_[static_cast<std::size_t>(to)]);
  std::vector<std::int32_t> links;
  if (distance[vertex] == kUnreached) return std::nullopt;
  while (vertex != source) {
    const auto first = in_.begin() + first_in_[static_cast<std::size_t>(vertex)];
    const auto last = in_.begin() + first_in_[static_cast<std::size_t>(vertex) + 1];
    const auto is_tight = [&](const InLink& link) {
      return distance[link.from] != kUnreached && distance[link.from] + link.cost == distance[vertex];
    };
    auto skip = choice % static_cast<std::uint64_t>(std::count_if(first, last, is_tight));
    auto taken = std::find_if(first, last, is_tight);
    for (; skip > 0; --skip) taken = std::find_if(taken + 1, last, is_tight);
    links.push_back(taken->link);
    vertex = taken->from;
  }
  std::reverse(links.begin(), links.end());
  return links;
}

}  // namespace longhaul
