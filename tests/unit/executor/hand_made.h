// Hand-made schedules with fixed durations, for tests and benchmarks of the executor.
//
// Units: durations in picoseconds. Every op writes a resident tensor of one element, so that it is not empty; a
// collective of b bytes is an all-reduce over b bytes of the resident tensor "buffer".
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/executor/simulate.h"

namespace longhaul::hand_made {

// Durations by function of the place; launches cost nothing unless set.
class FixedDurations : public OpDurations {
 public:
  using Rule = std::function<std::int64_t(const OpInstance&)>;
  Rule rule = [](const OpInstance&) { return 1; };
  std::int64_t launch_ps = 0;
  Rule stall;                       // < 0: none; no rule: no op stalls
  double beside_communication = 1;  // of kernels; of several the largest counts
  double beside_host_copy = 1;
  double beside_kernel = 1;                                      // of kernels of other streams
  std::array<double, kOverlapClassCount> transfers{1, 1, 1, 1};  // of a transfer beside a kernel of each class
  bool holds = false;                                            // GEMMs keep collectives off the device
  double last_wave = 0;                                          // of GEMMs
  bool at_once = true;                                           // GEMMs take the device with their first kernel

  OpDuration duration(const Schedule&, const OpInstance& at) const override {
    const bool host = at.op->stream == kCopyInStream || at.op->stream == kCopyOutStream;
    OpDuration duration{Time::from_ps(rule(at)),
                        host                               ? KernelKind::kCopyHostToDevice
                        : at.op->label.starts_with("gemm") ? KernelKind::kGemm
                                                           : KernelKind::kElementwise,
                        0};
    if (stall && stall(at) >= 0) duration.stall = Time::from_ps(stall(at));
    if (duration.kernel == KernelKind::kGemm) {
      duration.last_wave = last_wave;
      duration.takes_device_at_once = at_once;
    }
    return duration;
  }
  Time launch() const override { return Time::from_ps(launch_ps); }
  double kernel_slowdown(OverlapClass kernel, const Beside& beside, std::int64_t) const override {
    if (kernel == OverlapClass::kHostCopy) return 1;
    double slowdown = 1;
    if (beside.channels > 0) slowdown = std::max(slowdown, beside_communication);
    if (beside.host_copies > 0) slowdown = std::max(slowdown, beside_host_copy);
    if (beside.gemms + beside.attentions + beside.memory_kernels > 0) slowdown = std::max(slowdown, beside_kernel);
    return slowdown;
  }
  double transfer_slowdown(OverlapClass beside) const override { return transfers[static_cast<std::size_t>(beside)]; }
  bool holds_transfers(OverlapClass kernel) const override { return holds && kernel == OverlapClass::kGemm; }
};

// Transfers that do not disturb each other: `rule` gives the time of a call, all of it bytes.
class FixedNetwork : public CollectiveNetwork {
 public:
  using Rule = std::function<std::int64_t(const CollectiveCall&)>;
  Rule rule = [](const CollectiveCall& call) { return call.buffer_bytes; };
  std::int64_t prepared = 0;
  std::int64_t slowed = 0;  // changes of a transfer's factor

  TransferId prepare(const CollectiveCall& call) override {
    ++prepared;
    Entry entry{Time::from_ps(rule(call)), {}};
    const std::vector<std::int32_t>& ranks = call.schedule->groups[static_cast<std::size_t>(call.group)].members;
    entry.traffic.resize(ranks.size());
    if (call.kind == CollectiveKind::kExchange) {
      const auto member = [&](int rank) {
        return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
      };
      for (const PeerMessage& message : exchange_messages(call)) {
        if (message.from == message.to) continue;
        entry.traffic[member(message.from)].sent_intra_node += message.bytes.value;
        entry.traffic[member(message.to)].received += message.bytes.value;
      }
    } else {
      const std::int64_t bytes = call.buffer_bytes * (static_cast<std::int64_t>(ranks.size()) - 1);
      for (MemberBytes& traffic : entry.traffic) traffic = {bytes, 0, bytes};
    }
    entries_.push_back(std::move(entry));
    return static_cast<TransferId>(entries_.size()) - 1;
  }
  ExchangeChannels exchange_channels(const Schedule&, GroupId, const MemberExchange& member) override {
    return {member.peers, member.peers};
  }
  std::span<const MemberBytes> traffic(TransferId transfer) const override {
    return entries_[static_cast<std::size_t>(transfer)].traffic;
  }
  TransferUse use(TransferId transfer) const override {
    return {1, entries_[static_cast<std::size_t>(transfer)].time.seconds()};
  }
  void start(Time now, TransferId transfer, std::uint32_t tag) override {
    const Time time = entries_[static_cast<std::size_t>(transfer)].time;
    flights_.push_back({tag, static_cast<double>(time.ps()), 1, now, now + time});
  }
  void slow(Time now, std::span<const TaggedSlowdown> transfers) override {
    for (const TaggedSlowdown& change : transfers) {
      ++slowed;
      const auto flight =
          std::find_if(flights_.begin(), flights_.end(), [&](const Flight& f) { return f.tag == change.tag; });
      flight->left -= static_cast<double>((now - flight->since).ps()) / flight->factor;
      flight->factor = change.factor;
      flight->since = now;
      flight->end = now + Time::from_ps(static_cast<std::int64_t>(flight->left * change.factor + 0.5));
    }
  }
  Time next() const override {
    Time next = Time::max();
    for (const Flight& flight : flights_) next = std::min(next, flight.end);
    return next;
  }
  void advance(Time to, std::vector<std::uint32_t>& finished) override {
    for (const Flight& flight : flights_) {
      if (flight.end == to) finished.push_back(flight.tag);
    }
    std::erase_if(flights_, [to](const Flight& flight) { return flight.end == to; });
  }
  std::vector<std::int64_t> link_bytes() const override { return {}; }
  std::vector<double> link_peak_utilisation() const override { return {}; }

 private:
  struct Entry {
    Time time;
    std::vector<MemberBytes> traffic;
  };
  struct Flight {
    std::uint32_t tag = 0;
    double left = 0;  // ps at full rate, at `since`
    double factor = 1;
    Time since;
    Time end;
  };
  std::vector<Entry> entries_;
  std::vector<Flight> flights_;  // in the order of their starts
};

inline constexpr TensorKindId kOutKind = 0;     // resident, one element
inline constexpr TensorKindId kBufferKind = 1;  // resident, 2^40 bytes
inline constexpr std::int64_t kBufferElements = std::int64_t{1} << 39;

inline TensorRef step_tensor(TensorKindId kind) {
  TensorRef ref;
  ref.kind = kind;
  ref.has_layer = false;
  ref.has_chunk = false;
  return ref;
}

inline View flat_view(const TensorRef& tensor, std::int64_t elements, Access access) {
  View view;
  view.tensor = tensor;
  view.access = access;
  view.flat_rows = elements;
  view.columns = 1;
  return view;
}

// A kernel that writes the resident tensor "out".
inline Op kernel(std::string label, StreamId stream = kComputeStream) {
  Op op;
  op.kind = OpKind::kElementwise;
  op.function = Function::kZero;
  op.label = std::move(label);
  op.stream = stream;
  op.operands = {flat_view(step_tensor(kOutKind), 1, Access::kWrite)};
  return op;
}

// An all-reduce of `elements` bf16 elements.
inline Op all_reduce(std::string label, GroupRole role, std::int64_t elements) {
  Op op;
  op.kind = OpKind::kCollective;
  op.collective = CollectiveKind::kAllReduce;
  op.label = std::move(label);
  op.role = role;
  op.stream = static_cast<StreamId>(kFirstCommunicationStream + role);
  CollectivePart part;
  part.receive = flat_view(step_tensor(kBufferKind), elements, Access::kAccumulate);
  op.parts = {part};
  return op;
}

inline Op with(Op op, std::vector<EventSlot> waits, EventSlot record = kNoEvent) {
  op.waits = std::move(waits);
  op.record = record;
  return op;
}

// A schedule with `ranks` ranks, one empty shape set (for chunk 0) and the two resident tensors.
inline Schedule make_schedule(int ranks, std::vector<std::string> roles) {
  Schedule schedule;
  schedule.roles = std::move(roles);
  schedule.tensors = {{"out", kFlat, 1, 1, ElementType::kBf16, MemoryCategory::kActivations},
                      {"buffer", kFlat, kBufferElements, 1, ElementType::kBf16, MemoryCategory::kCommunication}};
  schedule.shapes.emplace_back();
  for (int rank = 0; rank < ranks; ++rank) {
    RankInfo info;
    info.groups.assign(schedule.roles.size(), -1);
    info.shapes = {0};
    info.representative = rank;
    schedule.ranks.push_back(info);
  }
  return schedule;
}

// Adds a program of one block over `ops`; gives it to `rank`.
inline void add_program(Schedule& schedule, int rank, std::vector<Op> ops, std::int16_t iterations = 1) {
  Block block;
  block.segment = static_cast<SegmentId>(schedule.segments.size());
  block.iterations = iterations;
  schedule.segments.push_back({"s" + std::to_string(rank), std::move(ops)});
  Program program;
  program.blocks = {block};
  program.resident = {step_tensor(kOutKind), step_tensor(kBufferKind)};
  schedule.ranks[static_cast<std::size_t>(rank)].program = static_cast<ProgramId>(schedule.programs.size());
  schedule.programs.push_back(program);
}

inline GroupId add_group(Schedule& schedule, std::vector<std::int32_t> members, GroupRole role) {
  const auto group = static_cast<GroupId>(schedule.groups.size());
  for (const std::int32_t rank : members) {
    schedule.ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(role)] = group;
  }
  schedule.groups.push_back({std::move(members)});
  return group;
}

// Durations by label; every label must be listed.
inline FixedDurations::Rule by_label(std::map<std::string, std::int64_t> times) {
  return [times = std::move(times)](const OpInstance& at) { return times.at(at.op->label); };
}

}  // namespace longhaul::hand_made
