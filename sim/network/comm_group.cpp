#include "sim/network/comm_group.h"

#include <algorithm>

#include "sim/core/invariant.h"

namespace longhaul {

NcclCall CommGroup::call(NcclCollective collective, std::int64_t bytes) const {
  NcclCall call;
  call.collective = collective;
  call.ranks = ranks;
  call.domains = static_cast<int>(domains.size());
  call.per_domain = largest;
  call.bytes = static_cast<double>(bytes);
  return call;
}

CommGroup make_comm_group(const Cluster& cluster, std::span<const int> ranks) {
  LH_ASSERT(!ranks.empty(), "a collective of 0 ranks");
  CommGroup group;
  std::vector<int> slot_of_domain(static_cast<std::size_t>(cluster.domains()), -1);
  for (const int rank : ranks) {
    LH_ASSERT(rank >= 0 && rank < cluster.gpus(), "rank {} of {} in a group", rank, cluster.gpus());
    int& slot = slot_of_domain[static_cast<std::size_t>(cluster.domain_of(rank))];
    if (slot < 0) {
      slot = static_cast<int>(group.domains.size());
      group.domains.emplace_back();
    }
    group.domains[static_cast<std::size_t>(slot)].push_back(rank);
  }
  group.ranks = static_cast<int>(ranks.size());
  group.smallest = group.ranks;
  for (const std::vector<int>& members : group.domains) {
    group.largest = std::max(group.largest, static_cast<int>(members.size()));
    group.smallest = std::min(group.smallest, static_cast<int>(members.size()));
  }
  return group;
}

std::int64_t even_part(std::int64_t bytes, std::size_t parts, std::size_t index) {
  const auto count = static_cast<std::int64_t>(parts);
  const auto i = static_cast<std::int64_t>(index);
  const std::int64_t rest = bytes % count;
  return bytes / count + ((i + 1) * rest / count - i * rest / count);
}

int tree_parent(int node, int count) {
  if (node == 0) return -1;
  int bit = 1;
  while ((bit & node) == 0) bit <<= 1;
  const int up = (node ^ bit) | (bit << 1);
  return up < count ? up : node ^ bit;
}

int second_tree_parent(int node, int count) {
  const bool even = count % 2 == 0;
  const int parent = tree_parent(even ? count - 1 - node : (node + count - 1) % count, count);
  if (parent < 0) return -1;
  return even ? count - 1 - parent : (parent + 1) % count;
}

}  // namespace longhaul
