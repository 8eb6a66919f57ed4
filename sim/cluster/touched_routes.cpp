#include "sim/cluster/touched_routes.h"

#include <algorithm>

namespace longhaul {

TouchedRoutes::TouchedRoutes(const Topology& topology, const DownByPart& nodes, const DownByPart& leaves,
                             const DownByPart& pods)
    : topology_(topology),
      down_(1),
      node_profiles_(add_profiles(nodes)),
      leaf_profiles_(add_profiles(leaves)),
      pod_profiles_(add_profiles(pods)) {}

TouchedRoutes::Profiles TouchedRoutes::add_profiles(const DownByPart& parts) {
  std::map<std::vector<std::int32_t>, int> known;
  Profiles profiles;
  for (const auto& [part, links] : parts) {
    const auto [entry, is_new] = known.try_emplace(links, static_cast<int>(down_.size()));
    if (is_new) down_.push_back(links);
    profiles[part] = entry->second;
  }
  return profiles;
}

bool TouchedRoutes::Ends::touched() const {
  return std::any_of(profiles.begin(), profiles.end(), [](int profile) { return profile != 0; });
}

std::optional<PartRoute> TouchedRoutes::route(const Ends& ends, int from, int to) {
  Key key = {ends.pattern.id(), from, ends.choice.port, ends.choice.spine, ends.choice.core};
  std::copy(ends.profiles.begin(), ends.profiles.end(), key.begin() + 5);
  const std::lock_guard lock(mutex_);
  auto found = known_.find(key);
  if (found == known_.end()) {
    DownLinks down = {};
    for (std::size_t owner = 0; owner < kLinkOwners; ++owner) {
      down[owner] = &down_[static_cast<std::size_t>(ends.profiles[owner])];
    }
    const PairGraph graph(topology_, ends.pattern, ends.choice, &down);
    found = known_.emplace(key, graph.routes_from(from)).first;
  }
  return found->second[static_cast<std::size_t>(to)];
}

}  // namespace longhaul
