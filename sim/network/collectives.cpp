#include "sim/network/collectives.h"

#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/network/protocol.h"

namespace longhaul {
namespace {

constexpr double kGiga = 1e9;

// Part `index` of `parts` of `bytes`: parts differ by at most one and sum to it.
std::int64_t share(std::int64_t bytes, std::size_t parts, std::size_t index) {
  const auto count = static_cast<std::int64_t>(parts);
  const auto i = static_cast<std::int64_t>(index);
  const std::int64_t rest = bytes % count;
  return bytes / count + ((i + 1) * rest / count - i * rest / count);
}

void set_times(Transfer& transfer, double latency_seconds, double byte_seconds) {
  transfer.latency = Time::from_seconds(latency_seconds);
  transfer.byte_seconds = byte_seconds;
  transfer.alone = transfer.latency + Time::from_seconds(byte_seconds);
}

}  // namespace

struct Collectives::Group {
  std::vector<std::vector<int>> nodes;  // ranks of each node, nodes in the order of their first member
  GroupShape shape;
};

Collectives::Collectives(const Cluster& cluster)
    : cluster_(&cluster), load_(cluster.links().size()), slot_(static_cast<std::size_t>(cluster.gpus()), -1) {}

Collectives::Group Collectives::make_group(std::span<const int> ranks) const {
  Group group;
  std::vector<int> slot_of_node(static_cast<std::size_t>(cluster_->nodes()), -1);
  for (const int rank : ranks) {
    LH_ASSERT(rank >= 0 && rank < cluster_->gpus(), "rank {} of {} in a group", rank, cluster_->gpus());
    int& slot = slot_of_node[static_cast<std::size_t>(cluster_->node_of(rank))];
    if (slot < 0) {
      slot = static_cast<int>(group.nodes.size());
      group.nodes.emplace_back();
    }
    group.nodes[static_cast<std::size_t>(slot)].push_back(rank);
  }
  group.shape.ranks = static_cast<int>(ranks.size());
  group.shape.nodes = static_cast<int>(group.nodes.size());
  for (const auto& members : group.nodes) {
    group.shape.per_node = std::max(group.shape.per_node, static_cast<int>(members.size()));
  }
  const bool pairs = cluster_->topology().node_fabric == NodeFabric::kPairs;
  const double link = cluster_->topology().nvlink.effective().value / kGiga;
  group.shape.local_rate = pairs ? link * (group.shape.per_node - 1) : link;
  return group;
}

// The route that the bytes take; empty without bytes.
Route Collectives::add_route(int from, int to, std::int64_t bytes) {
  if (bytes == 0) return {};
  const Route route = cluster_->route(from, to);
  for (const LinkId link : route) {
    std::int64_t& load = load_[static_cast<std::size_t>(link)];
    if (load == 0) touched_.push_back(link);
    load += bytes;
  }
  return route;
}

bool Collectives::is_nvlink(LinkId link) const {
  const Link& of = cluster_->links()[static_cast<std::size_t>(link)];
  return cluster_->link_classes()[of.link_class].name == cluster_->topology().nvlink.name;
}

void Collectives::add_local(const std::vector<int>& members, std::size_t member, std::int64_t bytes) {
  const std::size_t count = members.size();
  if (count == 1) {
    LH_ASSERT(bytes == 0, "{} bytes from others on a node with one member", bytes);
    return;
  }
  if (cluster_->topology().node_fabric == NodeFabric::kNvSwitch) {
    add_route(members[(member + count - 1) % count], members[member], bytes);
    return;
  }
  // The (count-1)! cyclic orders of the members use every directed pair equally often.
  for (std::size_t step = 1; step < count; ++step) {
    add_route(members[(member + count - step) % count], members[member], share(bytes, count - 1, step - 1));
  }
}

// Members of the one node send equal parts, members of the next take equal parts: with as many members on both, each
// stays on its rail.
void Collectives::add_boundary(const std::vector<int>& from, const std::vector<int>& to, std::int64_t bytes) {
  std::size_t target = 0;
  std::int64_t room = share(bytes, to.size(), 0);
  for (std::size_t source = 0; source < from.size(); ++source) {
    std::int64_t left = share(bytes, from.size(), source);
    while (left > 0) {
      if (room == 0) {
        room = share(bytes, to.size(), ++target);
        continue;
      }
      const std::int64_t part = std::min(left, room);
      add_route(from[source], to[target], part);
      left -= part;
      room -= part;
    }
  }
}

void Collectives::add_ring(const Group& group, std::int64_t each, int root) {
  const std::size_t node_count = group.nodes.size();
  for (std::size_t node = 0; node < node_count; ++node) {
    const std::vector<int>& members = group.nodes[node];
    const bool has_root = root >= 0 && cluster_->node_of(members[0]) == cluster_->node_of(root);
    const bool from_outside = node_count > 1 && !has_root;
    for (std::size_t member = 0; member < members.size(); ++member) {
      if (members[member] == root) continue;
      add_local(members, member, each - (from_outside ? share(each, members.size(), member) : 0));
    }
    if (from_outside) add_boundary(group.nodes[(node + node_count - 1) % node_count], members, each);
  }
}

// A chain inside each node, its head in a binary tree over nodes; every edge carries the buffer up and down.
void Collectives::add_tree(const Group& group, std::int64_t bytes) {
  const auto both_ways = [&](int child, int parent) {
    add_route(child, parent, bytes);
    add_route(parent, child, bytes);
  };
  for (std::size_t node = 0; node < group.nodes.size(); ++node) {
    const std::vector<int>& members = group.nodes[node];
    if (node > 0) both_ways(members[0], group.nodes[(node - 1) / 2][0]);
    for (std::size_t member = 1; member < members.size(); ++member) both_ways(members[member], members[member - 1]);
  }
}

double Collectives::link_seconds(const std::vector<double>& efficiency_of_class) const {
  double seconds = 0;
  for (const LinkId id : touched_) {
    const Link& link = cluster_->links()[static_cast<std::size_t>(id)];
    const double bytes = static_cast<double>(load_[static_cast<std::size_t>(id)]);
    seconds = std::max(seconds, bytes / (link.bandwidth.value * efficiency_of_class[link.link_class]));
  }
  return seconds;
}

void Collectives::choose_ring(const Group& group, int steps, std::int64_t total, Transfer& transfer) const {
  transfer.algorithm = Algorithm::kRing;
  double best = 0;
  for (const Protocol protocol : {Protocol::kSimple, Protocol::kLl128, Protocol::kLl}) {
    const double latency = ring_latency(*cluster_, group.shape, protocol, steps, total);
    if (!(latency < 1e6)) continue;
    std::vector<double> efficiency;
    for (const LinkClass& kind : cluster_->link_classes()) {
      efficiency.push_back(ring_efficiency(*cluster_, group.shape, protocol, kind));
    }
    const double bytes =
        std::max(link_seconds(efficiency), ring_step_seconds(*cluster_, group.shape, protocol, steps, total));
    if (protocol != Protocol::kSimple && latency + bytes >= best) continue;
    best = latency + bytes;
    transfer.protocol = protocol;
    set_times(transfer, latency, bytes);
  }
}

Transfer& Collectives::take_loads(Transfer& transfer) {
  std::sort(touched_.begin(), touched_.end());
  transfer.loads.reserve(touched_.size());
  for (const LinkId link : touched_) {
    std::int64_t& load = load_[static_cast<std::size_t>(link)];
    transfer.loads.push_back({link, load});
    load = 0;
  }
  touched_.clear();
  for (const MemberTraffic& member : transfer.members) {
    transfer.intra_node_bytes += member.sent_intra_node;
    transfer.inter_node_bytes += member.sent_inter_node;
  }
  return transfer;
}

Transfer Collectives::symmetric_ring(std::span<const int> ranks, std::int64_t each, int steps, std::int64_t total) {
  Transfer transfer;
  LH_ASSERT(!ranks.empty() && each >= 0, "a collective of {} ranks, {} bytes each", ranks.size(), each);
  if (each == 0) return transfer;
  const Group group = make_group(ranks);
  add_ring(group, each, -1);
  for (const auto& members : group.nodes) {
    for (std::size_t member = 0; member < members.size(); ++member) {
      slot_[static_cast<std::size_t>(members[member])] = static_cast<std::int32_t>(member);
    }
  }
  std::vector<std::size_t> node_size(static_cast<std::size_t>(cluster_->nodes()));
  for (const auto& members : group.nodes) {
    node_size[static_cast<std::size_t>(cluster_->node_of(members[0]))] = members.size();
  }
  for (const int rank : ranks) {
    std::int32_t& slot = slot_[static_cast<std::size_t>(rank)];
    LH_ASSERT(slot >= 0, "rank {} twice in a group", rank);
    const std::size_t size = node_size[static_cast<std::size_t>(cluster_->node_of(rank))];
    const std::int64_t outside = group.nodes.size() > 1 ? share(each, size, static_cast<std::size_t>(slot)) : 0;
    transfer.members.push_back({rank, each - outside, outside, each});
    slot = -1;
  }
  choose_ring(group, steps, total, transfer);
  return std::move(take_loads(transfer));
}

Transfer Collectives::all_gather(std::span<const int> ranks, Bytes per_rank) {
  const auto count = static_cast<std::int64_t>(ranks.size());
  return symmetric_ring(ranks, (count - 1) * per_rank.value, static_cast<int>(count - 1), count * per_rank.value);
}

Transfer Collectives::reduce_scatter(std::span<const int> ranks, Bytes per_rank_result) {
  return all_gather(ranks, per_rank_result);  // the same ring, run the other way round in time
}

Transfer Collectives::all_reduce(std::span<const int> ranks, Bytes buffer) {
  const auto count = static_cast<std::int64_t>(ranks.size());
  const std::int64_t part = (buffer.value + count - 1) / count;
  Transfer ring = symmetric_ring(ranks, 2 * (count - 1) * part, static_cast<int>(2 * (count - 1)), count * part);
  if (ring.loads.empty() || ring.inter_node_bytes == 0) return ring;
  Transfer tree = tree_all_reduce(ranks, buffer.value, ring.alone);
  return tree.alone < ring.alone && !tree.loads.empty() ? tree : ring;
}

// Empty where it cannot be faster than `to_beat`.
Transfer Collectives::tree_all_reduce(std::span<const int> ranks, std::int64_t bytes, Time to_beat) {
  Transfer tree;
  const Group group = make_group(ranks);
  const double latency = tree_latency(*cluster_, group.shape);
  const double least = static_cast<double>(bytes) / (kTreeLlRate * kGiga);
  if (Time::from_seconds(latency + least) >= to_beat) return tree;
  add_tree(group, bytes);
  // A member sends the buffer along every edge that it has: to its parent and to its children.
  std::vector<MemberTraffic> by_slot;
  for (std::size_t node = 0; node < group.nodes.size(); ++node) {
    const std::vector<int>& members = group.nodes[node];
    const auto exists = [&](std::size_t other) { return other < group.nodes.size() ? 1 : 0; };
    const std::int64_t node_edges = (node > 0 ? 1 : 0) + exists(2 * node + 1) + exists(2 * node + 2);
    for (std::size_t member = 0; member < members.size(); ++member) {
      const std::int64_t inside = bytes * ((member > 0 ? 1 : 0) + (member + 1 < members.size() ? 1 : 0));
      const std::int64_t outside = member == 0 ? node_edges * bytes : 0;
      slot_[static_cast<std::size_t>(members[member])] = static_cast<std::int32_t>(by_slot.size());
      by_slot.push_back({members[member], inside, outside, inside + outside});
    }
  }
  for (const int rank : ranks) {
    std::int32_t& slot = slot_[static_cast<std::size_t>(rank)];
    tree.members.push_back(by_slot[static_cast<std::size_t>(slot)]);
    slot = -1;
  }
  tree.algorithm = Algorithm::kTree;
  tree.protocol = Protocol::kLl;
  set_times(tree, latency, std::max(least, link_seconds(std::vector<double>(cluster_->link_classes().size(), 1.0))));
  return std::move(take_loads(tree));
}

Transfer Collectives::broadcast(std::span<const int> ranks, Bytes buffer) {
  Transfer transfer;
  LH_ASSERT(!ranks.empty() && buffer.value >= 0, "a broadcast to {} ranks, {} bytes", ranks.size(), buffer.value);
  if (buffer.value == 0 || ranks.size() == 1) return transfer;
  const Group group = make_group(ranks);
  add_ring(group, buffer.value, ranks[0]);
  // Every member but the root takes the buffer in; on its own node it comes from the members before it, else part of
  // it from the members of the node before.
  for (const int rank : ranks) {
    slot_[static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(transfer.members.size());
    transfer.members.push_back({rank, 0, 0, rank == ranks[0] ? 0 : buffer.value});
  }
  const auto member = [&](int rank) -> MemberTraffic& {
    return transfer.members[static_cast<std::size_t>(slot_[static_cast<std::size_t>(rank)])];
  };
  for (std::size_t node = 0; node < group.nodes.size(); ++node) {
    const std::vector<int>& members = group.nodes[node];
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i] == ranks[0]) continue;
      const std::int64_t outside = node == 0 ? 0 : share(buffer.value, members.size(), i);
      member(members[(i + members.size() - 1) % members.size()]).sent_intra_node += buffer.value - outside;
    }
    if (node + 1 == group.nodes.size()) break;
    for (std::size_t i = 0; i < members.size(); ++i) {
      member(members[i]).sent_inter_node += share(buffer.value, members.size(), i);
    }
  }
  for (const int rank : ranks) slot_[static_cast<std::size_t>(rank)] = -1;
  choose_ring(group, static_cast<int>(ranks.size()) - 1, buffer.value, transfer);
  return std::move(take_loads(transfer));
}

}  // namespace longhaul
