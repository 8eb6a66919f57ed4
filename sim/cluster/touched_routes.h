// Routes between nodes that links being down touch: shortest paths that avoid them.
//
// Parts (nodes, leaf groups, pods) with the same links down share a profile; a route depends on the profiles at both
// ends, so each combination is searched once, when first asked for. Safe to ask from several threads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "sim/cluster/pair_graph.h"

namespace longhaul {

class TouchedRoutes {
 public:
  // Links that are down, by part: (number of the part, sorted numbers of its links).
  using DownByPart = std::map<int, std::vector<std::int32_t>>;

  TouchedRoutes(const Topology& topology, const DownByPart& nodes, const DownByPart& leaves, const DownByPart& pods);

  // Profile of a part; 0: nothing is down there.
  int node_profile(int node) const { return profile(node_profiles_, node); }
  int leaf_profile(int leaf) const { return profile(leaf_profiles_, leaf); }
  int pod_profile(int pod) const { return profile(pod_profiles_, pod); }

  struct Ends {
    PairPattern pattern;
    PathChoice choice;
    std::array<int, kLinkOwners> profiles = {};  // by LinkOwner
    bool touched() const;
  };
  // From GPU `from` of the source's node to GPU `to` of the target's; nullopt if there is none.
  std::optional<PartRoute> route(const Ends& ends, int from, int to);

 private:
  using Key = std::array<int, 11>;
  using Profiles = std::map<int, int>;
  static int profile(const Profiles& profiles, int part) {
    const auto found = profiles.find(part);
    return found == profiles.end() ? 0 : found->second;
  }
  Profiles add_profiles(const DownByPart& parts);

  Topology topology_;
  std::vector<std::vector<std::int32_t>> down_;  // by profile
  Profiles node_profiles_, leaf_profiles_, pod_profiles_;
  std::mutex mutex_;
  std::map<Key, std::vector<std::optional<PartRoute>>> known_;
};

}  // namespace longhaul
