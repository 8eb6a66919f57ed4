#include "sim/network/load_sheet.h"

#include <algorithm>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {

void LoadSheet::Loads::put(LinkId link, std::int64_t bytes) {
  if (bytes == 0) return;
  std::int64_t& sum = load[static_cast<std::size_t>(link)];
  if (sum == 0) touched.push_back(link);
  sum += bytes;
}

void LoadSheet::Loads::put_once(LinkId link, std::int64_t bytes, std::uint64_t union_number) {
  if (std::exchange(seen[static_cast<std::size_t>(link)], union_number) != union_number) put(link, bytes);
}

LoadSheet::LoadSheet(const Cluster& cluster)
    : cluster_(&cluster), actual_(cluster.links().size()), slot_(static_cast<std::size_t>(cluster.gpus()), -1) {
  const auto down = [](const Link& link) { return link.down; };
  if (std::any_of(cluster.links().begin(), cluster.links().end(), down)) {
    undamaged_ = std::make_unique<Undamaged>(cluster);
  }
}

void LoadSheet::begin(std::span<const int> ranks) {
  LH_ASSERT(members_.empty() && actual_.touched.empty(), "a transfer is begun inside another");
  members_.reserve(ranks.size());
  for (const int rank : ranks) {
    LH_ASSERT(rank >= 0 && rank < cluster_->gpus(), "rank {} of {} in a group", rank, cluster_->gpus());
    std::int32_t& slot = slot_[static_cast<std::size_t>(rank)];
    LH_ASSERT(slot < 0, "rank {} twice in a group", rank);
    slot = static_cast<std::int32_t>(members_.size());
    members_.push_back({rank, 0, 0, 0});
  }
}

MemberTraffic& LoadSheet::member(int rank) {
  const std::int32_t slot = slot_[static_cast<std::size_t>(rank)];
  LH_ASSERT(slot >= 0, "rank {} is no member", rank);
  return members_[static_cast<std::size_t>(slot)];
}

void LoadSheet::put(LinkId link, std::int64_t bytes) {
  actual_.put(link, bytes);
  if (undamaged_) undamaged_->loads.put(link, bytes);
}

void LoadSheet::put_route(int from, int to, std::int64_t bytes) {
  if (bytes == 0) return;
  for (const LinkId link : cluster_->route(from, to)) actual_.put(link, bytes);
  if (!undamaged_) return;
  for (const LinkId link : undamaged_->cluster.route(from, to)) undamaged_->loads.put(link, bytes);
}

void LoadSheet::send(int from, int to, std::int64_t bytes) {
  if (bytes == 0 || from == to) return;
  put_route(from, to, bytes);
  MemberTraffic& sender = member(from);
  const bool near = cluster_->domain_of(from) == cluster_->domain_of(to);
  (near ? sender.sent_intra_node : sender.sent_inter_node) += bytes;
  member(to).received += bytes;
}

void LoadSheet::add_route_to_union(int from, int to, std::int64_t bytes) {
  for (const LinkId link : cluster_->route(from, to)) actual_.put_once(link, bytes, union_);
  if (!undamaged_) return;
  for (const LinkId link : undamaged_->cluster.route(from, to)) undamaged_->loads.put_once(link, bytes, union_);
}

void LoadSheet::add_first_link_to_union(int from, int to, std::int64_t bytes) {
  actual_.put_once(cluster_->route(from, to).front(), bytes, union_);
  if (undamaged_) undamaged_->loads.put_once(undamaged_->cluster.route(from, to).front(), bytes, union_);
}

void LoadSheet::add_last_link_to_union(int from, int to, std::int64_t bytes) {
  actual_.put_once(cluster_->route(from, to).back(), bytes, union_);
  if (undamaged_) undamaged_->loads.put_once(undamaged_->cluster.route(from, to).back(), bytes, union_);
}

void LoadSheet::take(Transfer& transfer) {
  std::sort(actual_.touched.begin(), actual_.touched.end());
  transfer.loads.reserve(actual_.touched.size());
  for (const LinkId link : actual_.touched) {
    transfer.loads.push_back({link, std::exchange(actual_.load[static_cast<std::size_t>(link)], 0)});
  }
  actual_.touched.clear();
  if (undamaged_) {
    for (const LinkId link : undamaged_->loads.touched) undamaged_->loads.load[static_cast<std::size_t>(link)] = 0;
    undamaged_->loads.touched.clear();
  }
  for (const MemberTraffic& member : members_) {
    slot_[static_cast<std::size_t>(member.rank)] = -1;
    transfer.intra_node_bytes += member.sent_intra_node;
    transfer.inter_node_bytes += member.sent_inter_node;
  }
  transfer.members = std::move(members_);
  members_.clear();
  transfer.merged_bytes = std::exchange(merged_, 0);
  transfer.copied_bytes = std::exchange(copied_, 0);
}

}  // namespace longhaul
