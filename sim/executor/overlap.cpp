// What runs side by side on a rank: rates of its kernels, and the pressure of kernels on transfers.
//
// A collective's kernel takes its channels from its arrival on: it spins on them while it waits for other members.
// Those of an exchange leave as their peers are done (moving_channels of sim/network/collectives.h).
// A rank's rates are set again at most once an instant, after everything that happens at that instant has happened. A
// transfer goes as slow as the rank that presses it most lets it: members are counted by pressure, and the network
// hears of a change once an instant, after the events that are queued for it by then.
#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/executor/engine.h"

namespace longhaul {
namespace {

std::int64_t round_ps(double ps) { return static_cast<std::int64_t>(ps + 0.5); }

std::size_t index_of(OverlapClass kernel) { return static_cast<std::size_t>(kernel); }

}  // namespace

void Engine::set_up_overlap() {
  transfer_slowdowns_ = {1};
  std::array<double, kOverlapClassCount> factors{};
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i] = durations_->transfer_slowdown(static_cast<OverlapClass>(i));
    LH_ASSERT(factors[i] >= 1, "a transfer slowed by {}", factors[i]);
    transfer_slowdowns_.push_back(factors[i]);
  }
  std::sort(transfer_slowdowns_.begin(), transfer_slowdowns_.end());
  transfer_slowdowns_.erase(std::unique(transfer_slowdowns_.begin(), transfer_slowdowns_.end()),
                            transfer_slowdowns_.end());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const auto place = std::find(transfer_slowdowns_.begin(), transfer_slowdowns_.end(), factors[i]);
    pressure_of_[i] = static_cast<std::int8_t>(place - transfer_slowdowns_.begin());
  }
}

void Engine::add_kernel(std::int32_t rank, const OpCost& cost, int change) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  std::int16_t& running = state.load.running[index_of(overlap_class(cost.kernel))];
  running = static_cast<std::int16_t>(running + change);
  state.load.kernels += change;
  state.load_changed = true;
}

void Engine::add_transfer(std::int32_t rank, CollectiveNetwork::TransferId transfer, const MemberBytes& bytes,
                          int change) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  const TransferUse use = network_->use(transfer);
  if (use.seconds > 0) {
    const auto moved = static_cast<double>(bytes.sent_intra_node + bytes.sent_inter_node + bytes.received);
    state.load.bytes_per_second += change * static_cast<std::int64_t>(moved / use.seconds);
  }
  state.load_changed = true;
}

double Engine::slowdown_of(const Load& load, const OpCost& cost) const {
  const OverlapClass kernel = overlap_class(cost.kernel);
  Beside beside;
  beside.gemms = load.running[index_of(OverlapClass::kGemm)];
  beside.attentions = load.running[index_of(OverlapClass::kAttention)];
  beside.memory_kernels = load.running[index_of(OverlapClass::kMemory)];
  beside.host_copies = load.running[index_of(OverlapClass::kHostCopy)];
  switch (kernel) {  // not beside itself
    case OverlapClass::kGemm:
      --beside.gemms;
      break;
    case OverlapClass::kAttention:
      --beside.attentions;
      break;
    case OverlapClass::kMemory:
      --beside.memory_kernels;
      break;
    case OverlapClass::kHostCopy:
      --beside.host_copies;
      break;
  }
  beside.channels = load.channels;
  beside.transferred_bytes_per_second = static_cast<double>(load.bytes_per_second);
  return durations_->kernel_slowdown(kernel, beside, cost.tiles);
}

// Until when kernels that are before it on the device keep the collective at the head of the stream off it, ps; `now`
// if none does. Of a kernel that started as the collective was called: it is before a collective that waited for that
// kernel's own stream, since it followed right there while the collective was told by an event, unless a call's short
// first kernel gives that time (takes_device_at_once); it is behind any other, as programs launch communication first.
// Measured on H200 with NCCL: rings with FlashAttention-2 (validate/data/h200x2/ring_steps.csv), gathers beside GEMMs
// and hops beside our executor's attention in whole steps (validate/data/runs).
std::int64_t Engine::held_until(std::int32_t rank, int id, Time now) const {
  std::int64_t until = now.ps();
  if (ranks_[static_cast<std::size_t>(rank)].load.kernels == 0) return until;
  const Stream& collective = stream_of(rank, id);
  for (int other = 0; other < stream_count_; ++other) {
    const Stream& stream = stream_of(rank, other);
    if (stream.state != StreamState::kRunning || stream.end == now.ps()) continue;
    const Iteration& pass = pass_of(rank, stream);
    const OpCost& cost = pass.costs->ops[op_index(stream, other, pass)];
    const bool right_behind =
        stream.start == collective.arrival && collective.wait_stream == other && cost.takes_device_at_once;
    if (stream.start >= collective.arrival && !right_behind) continue;
    if (!durations_->holds_transfers(overlap_class(cost.kernel))) continue;
    until = std::max(until, stream.end - round_ps(static_cast<double>(cost.last_wave) * stream.slowdown));
  }
  return until;
}

// Lets the collectives go on that no kernel holds any more, and says of the others when that will be.
void Engine::release_held(std::int32_t rank, Time now) {
  for (int id = 0; id < stream_count_; ++id) {
    Stream& stream = stream_of(rank, id);
    if (stream.state != StreamState::kHeld) continue;
    stream.end = held_until(rank, id, now);
    if (stream.end > now.ps()) continue;
    --ranks_[static_cast<std::size_t>(rank)].held;
    stream.arrival = now.ps();
    arrive(rank, id, now);
  }
}

// Gives every running kernel and host copy the rate that fits to what runs beside it now.
void Engine::set_rates(std::int32_t rank, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  state.load_changed = false;
  const bool shared = state.load.kernels > 1 || state.meetings > 0;
  if (!shared && !state.disturbed) return;
  state.disturbed = shared;
  for (int id = 0; id < stream_count_; ++id) {
    Stream& stream = stream_of(rank, id);
    if (stream.state != StreamState::kRunning || stream.end == now.ps()) continue;  // what ends now has run its course
    double slowdown = 1;
    if (shared) {
      const Iteration& pass = pass_of(rank, stream);
      slowdown = slowdown_of(state.load, pass.costs->ops[op_index(stream, id, pass)]);
      LH_ASSERT(slowdown >= 1, "a kernel slowed by {}", slowdown);
    }
    if (slowdown == stream.slowdown) continue;
    const double done = static_cast<double>(now.ps() - stream.updated) / stream.slowdown;
    stream.remaining = std::max(0.0, stream.remaining - done);
    stream.updated = now.ps();
    stream.slowdown = slowdown;
    stream.end = now.ps() + round_ps(stream.remaining * slowdown);
  }
  for (int id = 0; state.held > 0 && id < stream_count_; ++id) {
    Stream& stream = stream_of(rank, id);
    if (stream.state == StreamState::kHeld) stream.end = held_until(rank, id, now);
  }
  if (state.transfers > 0) set_pressure(rank, now);
}

// Passes the pressure of the rank's kernels on to its transfers in flight.
void Engine::set_pressure(std::int32_t rank, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  std::int8_t pressure = 0;
  for (std::size_t i = 0; i < state.load.running.size(); ++i) {
    if (state.load.running[i] > 0) pressure = std::max(pressure, pressure_of_[i]);
  }
  if (pressure == state.pressure) return;
  for (int id = 0; id < stream_count_; ++id) {
    if (stream_of(rank, id).state != StreamState::kTransfer) continue;
    const GroupId group = group_in(rank, id);
    Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
    if (!meeting.in_flight) continue;
    --meeting.members_under[static_cast<std::size_t>(state.pressure)];
    ++meeting.members_under[static_cast<std::size_t>(pressure)];
    update_pressure(group, now);
  }
  state.pressure = pressure;
}

void Engine::begin_pressure(std::int32_t group, Time now) {
  Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
  meeting.in_flight = true;
  meeting.members_under.fill(0);
  for (std::int32_t i = 0; i < meeting.member_count; ++i) {
    const MeetingMember& member = members_[static_cast<std::size_t>(meeting.members_begin + i)];
    ++meeting.members_under[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(member.rank)].pressure)];
  }
  meeting.pressure = 0;
  meeting.applied = 0;
  update_pressure(group, now);
}

void Engine::update_pressure(std::int32_t group, Time now) {
  Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
  auto pressure = static_cast<std::int8_t>(transfer_slowdowns_.size() - 1);
  while (pressure > 0 && meeting.members_under[static_cast<std::size_t>(pressure)] == 0) --pressure;
  meeting.pressure = pressure;
  if (meeting.pressure == meeting.applied || meeting.listed) return;
  meeting.listed = true;
  changed_meetings_.push_back(group);
  if (slowdowns_armed_ == now) return;
  slowdowns_armed_ = now;
  push(EventKind::kSlowdowns, 0, now);
}

void Engine::slow_transfers(Time now) {
  slowdowns_armed_ = Time::max();
  slowdowns_.clear();
  for (const std::int32_t group : changed_meetings_) {
    Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
    meeting.listed = false;
    if (!meeting.in_flight || meeting.pressure == meeting.applied) continue;
    meeting.applied = meeting.pressure;
    slowdowns_.push_back(
        {static_cast<std::uint32_t>(group), transfer_slowdowns_[static_cast<std::size_t>(meeting.applied)]});
  }
  changed_meetings_.clear();
  if (slowdowns_.empty()) return;
  network_->slow(now, slowdowns_);
  arm_network();
}

}  // namespace longhaul
