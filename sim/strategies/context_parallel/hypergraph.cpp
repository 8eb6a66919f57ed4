#include "sim/strategies/context_parallel/hypergraph.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/hypergraph_state.h"

namespace longhaul {

std::int64_t cut_cost(const Hypergraph& graph, const Assignment& parts) {
  std::int64_t cost = 0;
  std::vector<std::int32_t> touched;
  for (const Hypergraph::Net& net : graph.nets) {
    touched.clear();
    for (const std::int32_t pin : net.pins) touched.push_back(parts[static_cast<std::size_t>(pin)]);
    std::sort(touched.begin(), touched.end());
    const auto last = std::unique(touched.begin(), touched.end());
    if (last != touched.begin()) cost += net.cost * (last - touched.begin() - 1);
  }
  return cost;
}

std::vector<Hypergraph::Weights> part_weights(const Hypergraph& graph, const Assignment& parts, std::int32_t count) {
  std::vector<Hypergraph::Weights> weights(static_cast<std::size_t>(count), Hypergraph::Weights{0, 0});
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    for (std::size_t d = 0; d < 2; ++d) weights[static_cast<std::size_t>(parts[v])][d] += graph.vertices[v][d];
  }
  return weights;
}

namespace {

using hyper::PartitionState;

// The vertices of a level: clusters numbered from 0 in order of their first vertex, and the graph between them.
struct Level {
  Assignment cluster_of;
  Hypergraph graph;
};

Level contract(const Hypergraph& graph, const Assignment& clusters) {
  Level level;
  std::map<std::int32_t, std::int32_t> number;
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    const auto [entry, fresh] = number.try_emplace(clusters[v], static_cast<std::int32_t>(number.size()));
    if (fresh) level.graph.vertices.push_back({0, 0});
    level.cluster_of.push_back(entry->second);
    Hypergraph::Weights& sum = level.graph.vertices[static_cast<std::size_t>(entry->second)];
    for (std::size_t d = 0; d < 2; ++d) sum[d] += graph.vertices[v][d];
  }
  for (const Hypergraph::Net& net : graph.nets) {
    Hypergraph::Net joined{net.cost, {}};
    for (const std::int32_t pin : net.pins) joined.pins.push_back(level.cluster_of[static_cast<std::size_t>(pin)]);
    std::sort(joined.pins.begin(), joined.pins.end());
    joined.pins.erase(std::unique(joined.pins.begin(), joined.pins.end()), joined.pins.end());
    if (joined.pins.size() > 1) level.graph.nets.push_back(std::move(joined));
  }
  return level;
}

// Heaviest first. `by_cut`: to the part that adds least to the cut among those with room, else where it is lightest;
// otherwise always where it is lightest.
Assignment place_greedily(const Hypergraph& graph, std::int32_t count, double epsilon, bool by_cut) {
  const hyper::Capacity capacity(graph, count, epsilon);
  std::vector<std::size_t> order(graph.vertices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return capacity.fill(graph.vertices[a]) > capacity.fill(graph.vertices[b]);
  });
  std::vector<std::vector<std::int32_t>> nets_of(graph.vertices.size());
  for (std::size_t n = 0; n < graph.nets.size(); ++n) {
    for (const std::int32_t pin : graph.nets[n].pins) {
      nets_of[static_cast<std::size_t>(pin)].push_back(static_cast<std::int32_t>(n));
    }
  }
  const auto parts = static_cast<std::size_t>(count);
  std::vector<char> touched(graph.nets.size() * parts, 0);
  std::vector<Hypergraph::Weights> loads(parts, Hypergraph::Weights{0, 0});
  Assignment placed(graph.vertices.size(), 0);
  for (const std::size_t v : order) {
    std::size_t best = 0;
    bool best_fits = false;
    std::int64_t best_saved = 0;
    double best_fill = std::numeric_limits<double>::infinity();
    for (std::size_t p = 0; p < parts; ++p) {
      Hypergraph::Weights sum = loads[p];
      for (std::size_t d = 0; d < 2; ++d) sum[d] += graph.vertices[v][d];
      const double fill = capacity.fill(sum);
      const bool fits = by_cut && fill <= 1;
      std::int64_t saved = 0;
      if (fits) {
        for (const std::int32_t n : nets_of[v]) {
          const auto net = static_cast<std::size_t>(n);
          if (touched[net * parts + p] != 0) saved += graph.nets[net].cost;
        }
      }
      const bool better = fits != best_fits ? fits : saved != best_saved ? saved > best_saved : fill < best_fill;
      if (!better) continue;
      best = p;
      best_fits = fits;
      best_saved = saved;
      best_fill = fill;
    }
    placed[v] = static_cast<std::int32_t>(best);
    for (std::size_t d = 0; d < 2; ++d) loads[best][d] += graph.vertices[v][d];
    for (const std::int32_t n : nets_of[v]) touched[static_cast<std::size_t>(n) * parts + best] = 1;
  }
  return placed;
}

struct Found {
  Assignment parts;
  double excess = 0;
  std::int64_t cut = 0;
};

Found descend(const Hypergraph& graph, std::span<const Level> levels, std::int32_t count, double epsilon, bool by_cut) {
  Found found;
  found.parts.assign(graph.vertices.size(), 0);
  bool settled = false;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const Level& level = levels[i];
    // Many short documents: clusters of one level are those of the next.
    if (settled && level.cluster_of == levels[i - 1].cluster_of) continue;
    Assignment of_clusters;
    if (i == 0) {
      of_clusters = place_greedily(level.graph, count, epsilon, by_cut);
    } else {
      of_clusters.assign(level.graph.vertices.size(), 0);
      for (std::size_t v = 0; v < found.parts.size(); ++v) {
        of_clusters[static_cast<std::size_t>(level.cluster_of[v])] = found.parts[v];
      }
    }
    PartitionState state(level.graph, count, epsilon, std::move(of_clusters));
    settled = state.refine();
    for (std::size_t v = 0; v < found.parts.size(); ++v) {
      found.parts[v] = state.parts()[static_cast<std::size_t>(level.cluster_of[v])];
    }
    found.excess = state.excess();
  }
  found.cut = cut_cost(graph, found.parts);
  return found;
}

}  // namespace

Assignment partition_hypergraph(const Hypergraph& graph, std::span<const Assignment> levels, std::int32_t count,
                                double epsilon) {
  LH_ASSERT(count >= 1 && epsilon >= 0 && !levels.empty(), "{} parts, epsilon {}, {} levels", count, epsilon,
            levels.size());
  if (count == 1 || graph.vertices.empty()) return Assignment(graph.vertices.size(), 0);
  std::vector<Level> contracted;
  for (const Assignment& clusters : levels) contracted.push_back(contract(graph, clusters));
  Found best = descend(graph, contracted, count, epsilon, true);
  Found other = descend(graph, contracted, count, epsilon, false);
  const bool better = other.excess != best.excess ? other.excess < best.excess : other.cut < best.cut;
  return better ? std::move(other.parts) : std::move(best.parts);
}

}  // namespace longhaul
