// Shortest routes between the GPUs of two nodes: a Boost.Graph of the two, their NVLink domain if they share one, and
// the switches of the network above them, for each way in which two nodes can stand to each other.
//
// Vertices: GPUs, NVSwitches (one level or two), PCIe switches, NICs, leaves, spines, cores. Costs: NVLink cheapest,
// then PCIe, NIC, spine, core: rails first. Among equal parallel links (NICs of a GPU, spines, cores) the one that
// comes first from a preferred one on; all other ties go to the link that was added first, the same everywhere.
// Routes are written so that they can be moved to any two nodes that stand so: links by part and number in the part.
#pragma once

#include <array>
#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/cluster/link_layout.h"

namespace longhaul {

inline constexpr std::size_t kMaxHops = 16;

// The part of a cluster that a link of a route belongs to.
enum class LinkOwner : std::uint8_t { kSourceNode, kTargetNode, kSourceLeaf, kTargetLeaf, kSourcePod, kTargetPod };
inline constexpr std::size_t kLinkOwners = 6;

struct PartLink {
  LinkOwner owner = LinkOwner::kSourceNode;
  std::int32_t index = 0;
  bool operator==(const PartLink&) const = default;
};
using PartRoute = boost::container::static_vector<PartLink, kMaxHops>;

enum class NodeRelation : std::uint8_t { kSameNode, kSameLeaf, kSamePod, kOtherPod };

// How the target's node stands to the source's. One node is always `joined`: of one NVLink domain.
struct PairPattern {
  NodeRelation relation = NodeRelation::kSameNode;
  bool joined = true;
  int id() const { return relation == NodeRelation::kSameNode ? 0 : 2 * static_cast<int>(relation) - (joined ? 1 : 0); }
  static constexpr int kCount = 7;
};

// Which of the parallel links a flow prefers.
struct PathChoice {
  int port = 0;
  int spine = 0;
  int core = 0;
};

// The links of each part that are down, by number, sorted. Null: none.
using DownLinks = std::array<const std::vector<std::int32_t>*, kLinkOwners>;

class PairGraph {
 public:
  // Without `down` only the preferred parallel links are there: nothing can force a route off them.
  PairGraph(const Topology& topology, PairPattern pattern, PathChoice choice, const DownLinks* down);
  ~PairGraph();
  // Routes from GPU `from` of the source's node to every GPU of the target's; nullopt where there is none.
  std::vector<std::optional<PartRoute>> routes_from(int from) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul
