#include "sim/network/load_sheet.h"

#include <algorithm>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {

LoadSheet::LoadSheet(const Cluster& cluster)
    : cluster_(&cluster),
      load_(cluster.links().size()),
      slot_(static_cast<std::size_t>(cluster.gpus()), -1),
      seen_(cluster.links().size()) {}

void LoadSheet::begin(std::span<const int> ranks) {
  LH_ASSERT(members_.empty() && touched_.empty(), "a transfer is begun inside another");
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
  if (bytes == 0) return;
  std::int64_t& load = load_[static_cast<std::size_t>(link)];
  if (load == 0) touched_.push_back(link);
  load += bytes;
}

void LoadSheet::put_route(int from, int to, std::int64_t bytes) {
  if (bytes == 0) return;
  for (const LinkId link : cluster_->route(from, to)) put(link, bytes);
}

void LoadSheet::send(int from, int to, std::int64_t bytes) {
  if (bytes == 0 || from == to) return;
  put_route(from, to, bytes);
  MemberTraffic& sender = member(from);
  const bool near = cluster_->domain_of(from) == cluster_->domain_of(to);
  (near ? sender.sent_intra_node : sender.sent_inter_node) += bytes;
  member(to).received += bytes;
}

void LoadSheet::add_to_union(LinkId link, std::int64_t bytes) {
  std::uint64_t& seen = seen_[static_cast<std::size_t>(link)];
  if (seen == union_) return;
  seen = union_;
  put(link, bytes);
}

void LoadSheet::add_route_to_union(int from, int to, std::int64_t bytes) {
  for (const LinkId link : cluster_->route(from, to)) add_to_union(link, bytes);
}

void LoadSheet::take(Transfer& transfer) {
  std::sort(touched_.begin(), touched_.end());
  transfer.loads.reserve(touched_.size());
  for (const LinkId link : touched_) {
    std::int64_t& load = load_[static_cast<std::size_t>(link)];
    transfer.loads.push_back({link, load});
    load = 0;
  }
  touched_.clear();
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
