// What an executor writes and analysis reads: totals of every rank always, op records of chosen ranks on demand.
//
// Units: Time (integer picoseconds) and bytes. Idle time of the compute stream is split by cause (architecture.md,
// Terms); for every rank the parts of RankTotals sum to the step time exactly.
// Ignores: which strategy made the schedule; wall-clock times.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/core/sim_time.h"
#include "sim/cost/estimate.h"
#include "sim/schedule/op.h"
#include "sim/schedule/schedule.h"

namespace longhaul {

inline constexpr int kPassCount = 4;
inline constexpr int kOpKindCount = 7;
inline constexpr int kMemoryCategoryCount = static_cast<int>(MemoryCategory::kCount);
using MemoryByCategory = std::array<std::int64_t, kMemoryCategoryCount>;

// One op as it ran. Empty ops leave no record.
struct OpRecord {
  std::int32_t rank = 0;
  StreamId stream = kComputeStream;
  OpKind kind = OpKind::kElementwise;
  Pass pass = Pass::kForward;
  std::string_view label;  // lives as long as the schedule
  SegmentId segment = 0;
  std::int16_t index = 0;  // of the op in its segment
  std::int32_t chunk = 0;
  std::int16_t layer = 0;
  GroupId group = -1;  // collectives
  Time host;           // the host began to launch it
  Time issue;          // the host has launched it
  Time stalled;        // the host waited for its stream and its stall, up to here; zero: it did not
  Time called;         // issued, its stream free, its waits met
  // The same but of a collective that kernels of its rank keep off the device: when they do so no longer. A collective
  // may wait for members from here.
  Time arrival;
  Time start;  // a collective: all members have arrived
  Time end;
};

// Receives records while a simulation runs. Records of one rank come in order of their ends (equal ends: in stream
// order); records of different ranks are not ordered between each other.
class TimelineSink {
 public:
  virtual ~TimelineSink() = default;
  virtual void op(const OpRecord& record) = 0;
  // Bytes held by `rank` from `time` on.
  virtual void memory(std::int32_t rank, Time time, std::int64_t bytes, const MemoryByCategory& categories) = 0;
};

// Which records a sink wants. Totals do not depend on it.
struct TraceSelection {
  std::vector<std::int32_t> ranks;        // sorted or not; ranks that are folded away give no records
  std::int32_t chunks_below = INT32_MAX;  // ops of chunks from here on are left out; ops without a chunk are kept
};

// A collector for tests, small traces and reports.
class RecordedTimeline : public TimelineSink {
 public:
  struct MemorySample {
    std::int32_t rank = 0;
    Time time;
    std::int64_t bytes = 0;
  };
  void op(const OpRecord& record) override { ops.push_back(record); }
  void memory(std::int32_t rank, Time time, std::int64_t bytes, const MemoryByCategory&) override {
    samples.push_back({rank, time, bytes});
  }
  std::vector<OpRecord> ops;
  std::vector<MemorySample> samples;
};

// A hash over all fields of records, in the order given: equal runs have equal fingerprints.
std::uint64_t fingerprint(std::span<const OpRecord> records);

struct RankTotals {
  // What the kernels of the compute stream take alone.
  std::array<std::array<Time, kOpKindCount>, kPassCount> compute;  // [Pass][OpKind]
  std::array<Time, kKernelKindCount> kernel_kind;                  // the same time, by KernelKind
  // How much less or more it may be at 90 %: sums over kernels, as those of one kind err together.
  std::array<Time, kKernelKindCount> kernel_below, kernel_above;
  Time contention;  // what they took longer: beside transfers, host copies and kernels of other streams
  // Idle time of the compute stream.
  Time imbalance;              // before the last member of a collective arrived
  Time exposed_communication;  // from then to the end of the transfer; also data movement on other streams
  Time bubble;                 // on a pipeline edge, before the sender arrived
  Time launch;                 // the host had not issued the next op
  Time tail;                   // from the rank's last op to the end of the step
  // compute + contention + imbalance + exposed_communication + bubble + launch + tail == Totals::step.

  Time communication;    // at least one transfer of this rank in flight
  Time end;              // end of the rank's last op
  std::int64_t ops = 0;  // launched
  std::int64_t sent_intra_node = 0;
  std::int64_t sent_inter_node = 0;
  std::int64_t received = 0;
  std::int64_t resident_bytes = 0;
  std::int64_t peak_bytes = 0;
  Time peak_time;  // first time at the peak
  MemoryByCategory peak_categories{};

  Time busy() const;  // all of `compute`
  Time busy(Pass pass) const;
  Time busy(Pass pass, OpKind kind) const {
    return compute[static_cast<std::size_t>(pass)][static_cast<std::size_t>(kind)];
  }
  Time idle() const { return imbalance + exposed_communication + bubble + launch + tail; }
};

struct Totals {
  Time step;                             // the last end of any rank
  std::int32_t critical_rank = 0;        // the rank that ends last, the lowest of equal ones: its split is the step's
  std::vector<RankTotals> ranks;         // all ranks; a folded rank has a copy of its representative's
  std::vector<std::int64_t> link_bytes;  // by link; empty if the network has no links
  std::vector<double> link_peak_utilisation;  // by link, largest load / bandwidth
  // What the run was, for performance records; not part of results.
  std::int64_t ops = 0;          // ops that ran, empty ones included
  std::int64_t collectives = 0;  // meetings of groups
  std::int64_t events = 0;       // popped from the queue
};

}  // namespace longhaul
