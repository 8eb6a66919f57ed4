// Shortest routes in an explicit graph (graph_spec.h) by Boost.Graph: from every GPU its distances to all vertices.
// Memory: 8 bytes a GPU and vertex. A route is walked back over links that lie on a shortest path.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/cluster/graph_spec.h"

namespace longhaul {

class GraphRoutes {
 public:
  // `down` says of each link whether it is left out.
  GraphRoutes(const GraphSpec& graph, const std::vector<bool>& down);
  // Numbers of links in the graph; nullopt if there is no way, empty for from == to. Among equal links into a vertex
  // the one at `choice` modulo their number is taken.
  std::optional<std::vector<std::int32_t>> route(int from, int to, std::uint64_t choice) const;

 private:
  struct InLink {
    std::int32_t link = 0;
    std::int32_t from = 0;  // vertex
    std::int64_t cost = 0;
  };
  std::size_t vertices_ = 0;
  std::vector<int> gpus_;
  std::vector<std::int64_t> distances_;  // GPU-major
  std::vector<std::int32_t> first_in_;   // CSR of links into each vertex
  std::vector<InLink> in_;
};

}  // namespace longhaul
