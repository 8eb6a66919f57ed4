// The engine of `simulate`: ranks as logical processes that meet only in collectives.
//
// A rank keeps the next time of each of its streams and one entry in the global queue. While none of its collectives
// is waiting or in flight, nothing outside can touch it: it then runs ahead of the global clock, op after op, up to its
// next arrival at a collective. The queue holds rank wake-ups, starts of collectives and the network's next change.
// Events are (time, kind | index); a wake-up that is not the rank's earliest is stale and dropped.
//
// Layout: one cache line a stream, the passes in flight in a ring a rank, tables of code shared by all ranks (code.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/core/event_queue.h"
#include "sim/executor/code.h"
#include "sim/executor/memory.h"
#include "sim/executor/simulate.h"

namespace longhaul {

class Engine {
 public:
  Engine(const Schedule& schedule, const OpDurations& durations, CollectiveNetwork& network,
         const SimulationOptions& options);
  Totals run();

 private:
  enum class StreamState : std::uint8_t {
    kExhausted,  // has run all its ops of the passes issued so far
    kBlocked,    // waits for `wait_target` ops of `wait_stream`
    kIssue,      // waits for the host until `end`
    kRunning,    // a kernel or copy, until `end`
    kHeld,       // a collective that waits until `end` for multiprocessors of kernels before it
    kArrived,    // a collective that waits for members
    kTransfer,   // a collective in flight
  };
  static constexpr std::size_t kMostPressures = kOverlapClassCount + 1;
  struct alignas(64) Stream {
    std::int64_t end = 0;
    std::int64_t start = 0;
    std::int64_t arrival = 0;  // kBlocked: when what it waits for was last found to be there
    double remaining = 0;  // kRunning: work left at `updated`, in ps at full rate
    double slowdown = 1;   // kRunning: since `updated`
    std::int64_t updated = 0;  // of a collective: when it was called
    std::uint32_t done = 0;  // ops since the beginning
    std::uint32_t pass = 0;  // number of the pass that it works in
    std::uint32_t wait_target = 0;
    std::uint16_t position = 0;  // in the pass's list of this stream
    std::int8_t wait_stream = 0;
    StreamState state = StreamState::kExhausted;
  };

  // One pass over a segment (an iteration of a block) that the host has issued.
  struct Iteration {
    const SegmentCode* code = nullptr;
    const Variant* variant = nullptr;
    const SegmentCosts* costs = nullptr;
    const ShapeSet* shape = nullptr;
    Time issue_begin;
    // Ops from `first` on are issued so much later, ps: the host has waited for an op before them.
    struct Delay {
      std::size_t first = 0;
      std::int64_t time = 0;
    };
    std::vector<Delay> delays;
    std::vector<std::uint16_t> stalls;  // ops that the host waits for, rising; `stalls_started` of them have started
    std::size_t stalls_started = 0;
    std::int32_t remaining = 0;  // ops not done
    std::int32_t chunk = 0;
    std::int16_t layer = 0;
    SegmentId segment = 0;
  };
  struct Record {  // of an event slot: recorded when `stream` has done `done` ops
    std::uint32_t done = 0;
    std::int8_t stream = 0;
  };

  enum class Cause : std::uint8_t { kBusy, kImbalance, kExposed, kBubble, kLaunch, kDone };

  // What one rank runs at an instant.
  struct Load {
    std::array<std::int16_t, kOverlapClassCount> running{};  // kernels and host copies
    std::int32_t kernels = 0;                                // sum of `running`
    std::int32_t channels = 0;                               // of collectives that wait or are in flight
    std::int64_t bytes_per_second = 0;                       // sent and received by them when undisturbed
  };

  struct Rank {
    Time armed = Time::max();  // its earliest wake-up in the queue
    Time now;                  // time of the last thing that it did
    Time host;                 // when the host is free
    Time idle_since;
    Time communication_since;
    Load load;               // what runs and is in flight now
    std::uint32_t work = 0;  // streams to look at
    std::uint32_t passes_issued = 0;
    std::uint32_t passes_retired = 0;
    std::int32_t outstanding = 0;  // ops issued and not in retired passes
    std::int32_t stalls = 0;       // ops in issued passes that the host still waits for
    std::int32_t block = 0;
    std::int16_t iteration = 0;
    std::int16_t meetings = 0;  // collectives waiting or in flight
    std::int16_t transfers = 0;
    std::int16_t held = 0;
    std::int8_t pressure = 0;  // on its transfers: index into transfer_slowdowns_
    bool load_changed = false;
    bool disturbed = false;  // a stream may run slower than alone
    bool host_blocked = false;
    bool runs = false;
    bool traced = false;
    Cause cause = Cause::kLaunch;
  };

  struct Meeting {  // state of a group
    Time last_arrival;
    std::uint64_t key = 0;
    std::int64_t bytes = 0;
    std::int32_t members_begin = 0;  // into members_
    std::int32_t member_count = 0;   // representatives
    std::int32_t arrived = 0;
    CollectiveKind kind = CollectiveKind::kExchange;
    CollectiveNetwork::TransferId transfer = -1;
    // In flight: members by the pressure that their ranks put on it, the largest, and the one that the network has.
    std::array<std::int32_t, kMostPressures> members_under{};
    std::int8_t pressure = 0;
    std::int8_t applied = 0;
    bool in_flight = false;
    bool listed = false;  // in changed_meetings_
  };
  struct MeetingMember {
    std::int32_t rank = 0;
    std::int32_t index = 0;     // among all members of the group
    std::int8_t stream = -1;    // where it waits now
    std::int16_t channels = 0;  // that its kernel takes of the rank now
    std::int16_t moving = 0;    // and once all have come
  };
  struct CachedTransfer {
    CollectiveNetwork::TransferId transfer = -1;
    GroupId group = 0;
    CollectiveKind kind = CollectiveKind::kExchange;
    std::int64_t bytes = 0;
  };
  enum class EventKind : std::uint64_t { kRank, kMeeting, kNetwork, kSlowdowns };

  // setup.cpp
  void set_up_ranks();
  void set_up_groups();
  void hold_residents(std::int32_t rank);
  void check_residents(std::int32_t rank);

  // engine.cpp: ranks and streams
  void run_rank(std::int32_t rank, Time now);
  void run_due(std::int32_t rank, Time now);
  void settle(std::int32_t rank, Time now);
  void arm(std::int32_t rank);
  Time next_time(std::int32_t rank) const;
  void issue_passes(std::int32_t rank, Time now);
  void issue_pass(std::int32_t rank, const Block& block, const Variant& variant);
  void retire_op(std::int32_t rank, int stream, Iteration& pass, Time now);
  bool find_pass(std::int32_t rank, int stream, std::uint32_t from);
  void advance(std::int32_t rank, int stream, Time now);
  bool waits_met(std::int32_t rank, Stream& stream, const Variant& variant, std::size_t index) const;
  void start(std::int32_t rank, int stream, Time now);
  Time issue_time(const Iteration& pass, std::size_t index) const;
  bool behind_stall(std::int32_t rank, std::uint32_t pass, std::size_t index) const;
  void hold_host(std::int32_t rank, int stream, std::size_t index, Time now);
  void finish_kernel(std::int32_t rank, int stream, Time now);
  void complete(std::int32_t rank, int stream, Time now);
  void account(std::int32_t rank, Time now);
  Cause cause_of_idle(std::int32_t rank) const;

  // overlap.cpp: what runs side by side
  void set_up_overlap();
  void add_kernel(std::int32_t rank, const OpCost& cost, int change);
  void add_transfer(std::int32_t rank, CollectiveNetwork::TransferId transfer, const MemberBytes& bytes, int change);
  std::int64_t held_until(std::int32_t rank, int stream, Time now) const;
  void release_held(std::int32_t rank, Time now);
  void set_rates(std::int32_t rank, Time now);
  double slowdown_of(const Load& load, const OpCost& cost) const;
  void set_pressure(std::int32_t rank, Time now);
  void begin_pressure(std::int32_t group, Time now);
  void update_pressure(std::int32_t group, Time now);
  void slow_transfers(Time now);

  // meeting.cpp: collectives
  void arrive(std::int32_t rank, int stream, Time now);
  void hold_channels(std::int32_t rank, MeetingMember& member, std::int32_t group);
  void start_meeting(std::int32_t group, Time now);
  void end_meeting(std::int32_t group, Time now);
  CollectiveNetwork::TransferId transfer_of(std::int32_t group);
  Time arrival_of(std::int32_t group, std::size_t index) const;
  void arm_network();
  void run_network(Time now);

  // tensors.cpp: memory
  void begin_memory(std::int32_t rank, const Iteration& pass, std::size_t index, Time now);
  void end_memory(std::int32_t rank, const Iteration& pass, std::size_t index, Time now);
  void begin_listed(std::int32_t rank, const Iteration& pass, std::size_t index, Time now);
  void end_listed(std::int32_t rank, const Iteration& pass, std::size_t index, Time now);
  void acquire(std::int32_t rank, std::uint64_t key, std::int64_t bytes, std::uint8_t category, const Op& op);
  void release(std::int32_t rank, std::uint64_t key, std::int64_t bytes, std::uint8_t category, const Op& op);
  void report_memory(std::int32_t rank, Time now);
  std::string describe_key(std::uint64_t key) const;

  // report.cpp
  void trace(std::int32_t rank, int stream, const Iteration& pass, std::size_t index, Time now);
  Totals finish_totals();
  [[noreturn]] void report_deadlock() const;
  std::string waiting_text(std::int32_t rank, int stream) const;
  std::string place(std::int32_t rank, const Iteration& pass, std::size_t index) const;

  Stream& stream_of(std::int32_t rank, int stream) {
    return streams_[static_cast<std::size_t>(rank) * static_cast<std::size_t>(stream_count_) +
                    static_cast<std::size_t>(stream)];
  }
  const Stream& stream_of(std::int32_t rank, int stream) const {
    return streams_[static_cast<std::size_t>(rank) * static_cast<std::size_t>(stream_count_) +
                    static_cast<std::size_t>(stream)];
  }
  std::size_t pass_slot(std::int32_t rank, std::uint32_t pass) const {
    return static_cast<std::size_t>(rank) * pass_capacity_ + (pass & (pass_capacity_ - 1));
  }
  const Iteration& pass_of(std::int32_t rank, const Stream& stream) const {
    return passes_[pass_slot(rank, stream.pass)];
  }
  GroupId group_in(std::int32_t rank, int stream) const;  // of the collective at the head of the stream
  static bool is_timed(const Stream& stream) {  // by its `end`
    return stream.state == StreamState::kRunning || stream.state == StreamState::kIssue ||
           stream.state == StreamState::kHeld;
  }
  static std::size_t op_index(const Stream& stream, int id, const Iteration& pass) {
    return pass.variant->order[pass.variant->stream_begin[static_cast<std::size_t>(id)] + stream.position];
  }
  // The rank that runs what `rank` does.
  std::int32_t runner_of(std::int32_t rank) const {
    const std::int32_t other = schedule_->ranks[static_cast<std::size_t>(rank)].representative;
    return options_->unfolded || other < 0 ? rank : other;
  }
  OpInstance instance(std::int32_t rank, const Iteration& pass, std::size_t index) const;
  RankTotals& totals(std::int32_t rank) { return totals_.ranks[static_cast<std::size_t>(rank)]; }
  void push(EventKind kind, std::int64_t index, Time time) {
    queue_.push(time, (static_cast<std::uint64_t>(kind) << 32) | static_cast<std::uint64_t>(index));
  }

  const Schedule* schedule_;
  const OpDurations* durations_;
  CollectiveNetwork* network_;
  const SimulationOptions* options_;
  CodeCache code_;
  int stream_count_;
  std::uint32_t pass_capacity_;
  std::size_t import_stride_;
  std::size_t slot_stride_;
  std::vector<double> transfer_slowdowns_;                     // rising, the first is 1
  std::array<std::int8_t, kOverlapClassCount> pressure_of_{};  // of a running kernel on its rank's transfers

  RadixQueue queue_;
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;        // by rank, stream
  std::vector<Iteration> passes_;      // by rank, ring of pass_capacity_
  std::vector<std::uint32_t> bases_;   // by pass slot, stream: ops done before the pass
  std::vector<Record> imports_;        // by pass slot, import
  std::vector<Record> slots_;          // by rank, event slot: the latest record in issued passes
  std::vector<std::uint32_t> issued_;  // by rank, stream: ops in issued passes
  std::vector<RankMemory> memory_;
  std::vector<Meeting> meetings_;  // by group
  std::vector<MeetingMember> members_;
  std::vector<std::int32_t> member_slot_;                        // by rank, role: index into members_, -1 if none
  std::unordered_map<std::uint64_t, CachedTransfer> transfers_;  // unordered: looked up only
  std::vector<std::int32_t> changed_meetings_;                   // their pressure is not the network's yet
  std::vector<TaggedSlowdown> slowdowns_;
  std::vector<std::uint32_t> finished_;
  std::vector<Time> arrivals_;  // of the members of the exchange that starts
  std::vector<TensorId> scratch_ids_;
  Time network_armed_ = Time::max();
  Time slowdowns_armed_ = Time::max();
  Totals totals_;
};

}  // namespace longhaul
