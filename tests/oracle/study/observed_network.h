// A network that passes every call on to the flow network of a cluster and counts what was really started.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/executor/models.h"

namespace longhaul::oracle {

class ObservedNetwork : public CollectiveNetwork {
 public:
  // Calls of the roles in `free` take no time and no links; their bytes are counted all the same.
  explicit ObservedNetwork(const Cluster& cluster, std::vector<std::string> free = {})
      : inner_(make_flow_network(cluster)), free_(std::move(free)) {}

  // Sent and received by all members together, by role, over all calls started.
  std::map<std::string, MemberBytes> bytes;
  std::int64_t started = 0;

  TransferId prepare(const CollectiveCall& call) override {
    const OpInstance& first = call.members.front();
    Entry entry;
    entry.role = call.schedule->roles[static_cast<std::size_t>(first.op->role)];
    entry.inner = inner_->prepare(call);
    for (const std::string& role : free_) entry.free |= role == entry.role;
    for (const MemberBytes& member : inner_->traffic(entry.inner)) {
      entry.sum.sent_intra_node += member.sent_intra_node;
      entry.sum.sent_inter_node += member.sent_inter_node;
      entry.sum.received += member.received;
    }
    entries_.push_back(entry);
    return static_cast<TransferId>(entries_.size()) - 1;
  }
  ExchangeChannels exchange_channels(const Schedule& schedule, GroupId group, const MemberExchange& member) override {
    const std::int32_t rank = schedule.groups[static_cast<std::size_t>(group)].members.front();
    const std::vector<GroupId>& groups = schedule.ranks[static_cast<std::size_t>(rank)].groups;
    for (std::size_t role = 0; role < groups.size(); ++role) {
      if (groups[role] != group) continue;
      for (const std::string& free : free_) {
        if (free == schedule.roles[role]) return {};
      }
    }
    return inner_->exchange_channels(schedule, group, member);
  }
  std::span<const MemberBytes> traffic(TransferId transfer) const override {
    return inner_->traffic(entries_[static_cast<std::size_t>(transfer)].inner);
  }
  TransferUse use(TransferId transfer) const override {
    const Entry& entry = entries_[static_cast<std::size_t>(transfer)];
    return entry.free ? TransferUse{} : inner_->use(entry.inner);
  }
  void slow(Time now, std::span<const TaggedSlowdown> transfers) override {
    std::vector<TaggedSlowdown> timed;  // those that take no time are not known to the inner network
    for (const TaggedSlowdown& change : transfers) {
      const auto same = [&](const Free& free) { return free.tag == change.tag; };
      if (std::none_of(at_once_.begin(), at_once_.end(), same)) timed.push_back(change);
    }
    inner_->slow(now, timed);
  }
  void start(Time now, TransferId transfer, std::uint32_t tag) override {
    begin(now, transfer, tag, [&](TransferId inner) { inner_->start(now, inner, tag); });
  }
  void start_exchange(Time now, TransferId transfer, std::uint32_t tag, std::span<const Time> arrivals) override {
    begin(now, transfer, tag, [&](TransferId inner) { inner_->start_exchange(now, inner, tag, arrivals); });
  }
  template <typename Start>
  void begin(Time now, TransferId transfer, std::uint32_t tag, Start start_inner) {
    const Entry& entry = entries_[static_cast<std::size_t>(transfer)];
    MemberBytes& sum = bytes[entry.role];
    sum.sent_intra_node += entry.sum.sent_intra_node;
    sum.sent_inter_node += entry.sum.sent_inter_node;
    sum.received += entry.sum.received;
    ++started;
    if (entry.free) {
      at_once_.push_back({now, tag});
    } else {
      start_inner(entry.inner);
    }
  }
  Time next() const override { return at_once_.empty() ? inner_->next() : at_once_.front().time; }
  void advance(Time to, std::vector<std::uint32_t>& finished) override {
    if (at_once_.empty()) return inner_->advance(to, finished);
    for (const Free& free : at_once_) finished.push_back(free.tag);  // all were started at one time: it is `to`
    at_once_.clear();
  }
  std::vector<std::int64_t> link_bytes() const override { return inner_->link_bytes(); }
  std::vector<double> link_peak_utilisation() const override { return inner_->link_peak_utilisation(); }

 private:
  struct Entry {
    std::string role;
    TransferId inner = 0;
    bool free = false;
    MemberBytes sum;
  };
  struct Free {
    Time time;
    std::uint32_t tag = 0;
  };
  std::unique_ptr<CollectiveNetwork> inner_;
  std::vector<std::string> free_;
  std::vector<Entry> entries_;
  std::vector<Free> at_once_;
};

}  // namespace longhaul::oracle
