// Collectives: members arrive, the transfer starts, all go on together.
#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/core/mix.h"
#include "sim/executor/engine.h"

namespace longhaul {

void Engine::arrive(std::int32_t rank, int id, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  Stream& stream = stream_of(rank, id);
  const Iteration& pass = pass_of(rank, stream);
  const std::size_t index = op_index(stream, id, pass);
  const Op& op = *pass.code->ops[index].op;
  const OpCost& cost = pass.costs->ops[index];
  const auto role = static_cast<std::size_t>(op.role);
  LH_ASSERT(op.role >= 0 && role < schedule_->roles.size(), "{}: no group role {}", place(rank, pass, index), op.role);
  const std::int32_t slot = member_slot_[static_cast<std::size_t>(rank) * schedule_->roles.size() + role];
  LH_ASSERT(slot >= 0, "{}: the rank has no group of role {}", place(rank, pass, index), schedule_->roles[role]);
  const GroupId group = schedule_->ranks[static_cast<std::size_t>(rank)].groups[role];
  Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
  MeetingMember& member = members_[static_cast<std::size_t>(slot)];
  LH_ASSERT(member.stream < 0, "{}: the rank is in two collectives of group {} at once", place(rank, pass, index),
            group);
  if (meeting.arrived == 0) {
    meeting.kind = op.collective;
    meeting.bytes = op.collective == CollectiveKind::kExchange ? 0 : cost.value;
    meeting.key = mix(static_cast<std::uint64_t>(op.collective));
    meeting.last_arrival = now;
  }
  LH_ASSERT(
      meeting.kind == op.collective && (op.collective == CollectiveKind::kExchange || meeting.bytes == cost.value),
      "{}: {} of {} bytes in group {}, but other members call {} of {} bytes", place(rank, pass, index),
      to_string(op.collective), cost.value, group, to_string(meeting.kind), meeting.bytes);
  // Order of arrival must not matter: a sum over members. Ring collectives differ by their bytes alone.
  if (op.collective == CollectiveKind::kExchange) {
    const auto at = static_cast<std::uint64_t>(slot - meeting.members_begin);
    meeting.key += mix(mix(at << 32) ^ static_cast<std::uint64_t>(cost.value));
  }
  member.stream = static_cast<std::int8_t>(id);
  stream.state = StreamState::kArrived;
  ++state.meetings;
  hold_channels(rank, member, group);
  meeting.last_arrival = std::max(meeting.last_arrival, now);
  if (++meeting.arrived == meeting.member_count) push(EventKind::kMeeting, group, meeting.last_arrival);
}

// The kernel of a member that has just arrived is on the device. How many channels it has follows from what it does by
// itself; that all members of a collective other than an exchange do the same is checked as they arrive.
void Engine::hold_channels(std::int32_t rank, MeetingMember& member, std::int32_t group) {
  Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
  int channels = 0, moving = 0;
  if (meeting.kind == CollectiveKind::kExchange) {
    const Stream& stream = stream_of(rank, member.stream);
    const Iteration& pass = pass_of(rank, stream);
    const std::size_t index = op_index(stream, member.stream, pass);
    const ExchangeChannels of = network_->exchange_channels(*schedule_, group, pass.costs->exchanges[index]);
    channels = of.waiting;
    moving = of.moving;
  } else {
    if (meeting.arrived == 0) meeting.transfer = transfer_of(group);
    channels = moving = network_->use(meeting.transfer).channels;
  }
  member.channels = static_cast<std::int16_t>(channels);
  member.moving = static_cast<std::int16_t>(moving);
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  state.load.channels += channels;
  state.load_changed = true;
}

CollectiveNetwork::TransferId Engine::transfer_of(std::int32_t group) {
  Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
  // Nested, so that the parts cannot stand for each other.
  const std::uint64_t what = meeting.kind == CollectiveKind::kExchange
                                 ? meeting.key
                                 : mix(meeting.key + static_cast<std::uint64_t>(meeting.bytes));
  const std::uint64_t key = mix(mix(static_cast<std::uint64_t>(group)) + what);
  const auto found = transfers_.find(key);
  if (found != transfers_.end()) {
    const CachedTransfer& cached = found->second;
    LH_ASSERT(cached.group == group && cached.kind == meeting.kind && cached.bytes == meeting.bytes,
              "two collective calls share the key {}", key);
    return cached.transfer;
  }

  std::vector<OpInstance> instances;
  for (const std::int32_t rank : schedule_->groups[static_cast<std::size_t>(group)].members) {
    // A member that is folded away does what its representative does, with its own shapes.
    const std::int32_t runner = runner_of(rank);
    const MeetingMember* const first = members_.data() + meeting.members_begin;
    const MeetingMember* const member =
        std::find_if(first, first + meeting.member_count, [&](const MeetingMember& m) { return m.rank == runner; });
    LH_ASSERT(member != first + meeting.member_count, "rank {} of group {} has no running member", rank, group);
    if (member->stream < 0) continue;  // not an exchange, and not here yet
    const Stream& stream = stream_of(runner, member->stream);
    const Iteration& pass = pass_of(runner, stream);
    OpInstance at = instance(runner, pass, op_index(stream, member->stream, pass));
    if (rank != runner) {
      at.rank = rank;
      at.shape = pass.chunk < 0 ? nullptr : &schedule_->shape(rank, pass.chunk);
    }
    instances.push_back(at);
    if (meeting.kind != CollectiveKind::kExchange) break;
  }
  CollectiveCall call;
  call.schedule = schedule_;
  call.group = group;
  call.kind = meeting.kind;
  call.buffer_bytes = meeting.kind == CollectiveKind::kExchange ? 0 : meeting.bytes;
  call.members = instances;
  const CollectiveNetwork::TransferId transfer = network_->prepare(call);
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (const MemberBytes& bytes : network_->traffic(transfer)) {
    sent += bytes.sent_intra_node + bytes.sent_inter_node;
    received += bytes.received;
  }
  const TransferUse use = network_->use(transfer);
  LH_ASSERT(sent + use.copied_bytes == received + use.merged_bytes,
            "{} in group {}: {} bytes sent, {} received; switches copied {} and merged {}", to_string(meeting.kind),
            group, sent, received, use.copied_bytes, use.merged_bytes);
  transfers_.emplace(key, CachedTransfer{transfer, group, meeting.kind, meeting.bytes});
  return transfer;
}

// When member `index` of the group, or the one that runs for it, came to the collective that all have reached.
Time Engine::arrival_of(std::int32_t group, std::size_t index) const {
  const Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
  const std::vector<std::int32_t>& ranks = schedule_->groups[static_cast<std::size_t>(group)].members;
  const MeetingMember* const first = members_.data() + meeting.members_begin;
  const MeetingMember* member = first + index;
  if (static_cast<std::size_t>(meeting.member_count) != ranks.size()) {
    const std::int32_t runner = runner_of(ranks[index]);
    member =
        std::find_if(first, first + meeting.member_count, [&](const MeetingMember& m) { return m.rank == runner; });
  }
  return Time::from_ps(stream_of(member->rank, member->stream).arrival);
}

void Engine::start_meeting(std::int32_t group, Time now) {
  Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
  if (meeting.kind == CollectiveKind::kExchange) meeting.transfer = transfer_of(group);
  ++totals_.collectives;
  const std::span<const MemberBytes> traffic = network_->traffic(meeting.transfer);
  for (std::int32_t i = 0; i < meeting.member_count; ++i) {
    MeetingMember& member = members_[static_cast<std::size_t>(meeting.members_begin + i)];
    Rank& state = ranks_[static_cast<std::size_t>(member.rank)];
    if (member.moving != member.channels) {
      state.load.channels += member.moving - member.channels;
      state.load_changed = true;
      member.channels = member.moving;
    }
    Stream& stream = stream_of(member.rank, member.stream);
    stream.state = StreamState::kTransfer;
    stream.start = now.ps();
    RankTotals& sums = totals(member.rank);
    const MemberBytes& bytes = traffic[static_cast<std::size_t>(member.index)];
    sums.sent_intra_node += bytes.sent_intra_node;
    sums.sent_inter_node += bytes.sent_inter_node;
    sums.received += bytes.received;
    if (state.transfers++ == 0) state.communication_since = now;
    add_transfer(member.rank, meeting.transfer, bytes, 1);
    set_rates(member.rank, now);
    account(member.rank, now);
    arm(member.rank);
  }
  if (meeting.kind == CollectiveKind::kExchange) {
    arrivals_.clear();
    for (std::size_t i = 0; i < traffic.size(); ++i) arrivals_.push_back(arrival_of(group, i));
    network_->start_exchange(now, meeting.transfer, static_cast<std::uint32_t>(group), arrivals_);
  } else {
    network_->start(now, meeting.transfer, static_cast<std::uint32_t>(group));
  }
  begin_pressure(group, now);
  arm_network();
}

void Engine::end_meeting(std::int32_t group, Time now) {
  Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
  meeting.arrived = 0;
  meeting.in_flight = false;
  const CollectiveNetwork::TransferId transfer = meeting.transfer;
  // Members may arrive at the group's next collective while this loop runs; `arrived` counts from zero again by then.
  for (std::int32_t i = 0; i < meeting.member_count; ++i) {
    MeetingMember& member = members_[static_cast<std::size_t>(meeting.members_begin + i)];
    Rank& state = ranks_[static_cast<std::size_t>(member.rank)];
    const int stream = member.stream;
    member.stream = -1;
    --state.meetings;
    state.load.channels -= member.channels;
    if (--state.transfers == 0) totals(member.rank).communication += now - state.communication_since;
    add_transfer(member.rank, transfer, network_->traffic(transfer)[static_cast<std::size_t>(member.index)], -1);
    complete(member.rank, stream, now);
    run_rank(member.rank, now);
  }
}

void Engine::arm_network() {
  const Time next = network_->next();
  if (next >= network_armed_) return;
  network_armed_ = next;
  push(EventKind::kNetwork, 0, next);
}

void Engine::run_network(Time now) {
  if (now != network_armed_) return;
  network_armed_ = Time::max();
  if (network_->next() == now) {
    finished_.clear();
    network_->advance(now, finished_);
    for (std::size_t i = 0; i < finished_.size(); ++i) end_meeting(static_cast<std::int32_t>(finished_[i]), now);
  }
  arm_network();
}

}  // namespace longhaul
