// The third executor: runs a planned schedule on devices, for its numbers or for its times.
//
// Numbers: all ranks together, in the common launch order, with the schedule's streams and events; tensors that a
// caller wants are read when they are released. Times of virtual ranks: one rank after another, alone on the device,
// with noise in place of what others would send; times of real ranks: all together. Each twice: with an event before
// and after every op, and without (whole steps). A device is given a good part of a step before it starts, so that it
// never waits for the host unless kernels are shorter than their launches.
// Every failure is a DeviceFault with the op where that is known.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "validate/device/device.h"
#include "validate/device/device_plan.h"
#include "validate/device/host_bytes.h"
#include "validate/device/run_record.h"
#include "validate/device/transport.h"

namespace longhaul {

// A slow-down that is put in on purpose, to see that gates find it: every op of that label (and pass) takes `share` of
// its own median time longer, as first measured.
struct Plant {
  std::string kernel;  // "gate_up", or "gate_up (forward)", as gates name it; empty: none
  double share = 0;
  bool hits(const Op& op) const;
};

struct ExecutorOptions {
  std::uint64_t parameter_seed = 1;
  std::int32_t warmups = 2;
  std::int32_t repeats = 10;
  std::chrono::milliseconds timeout{120'000};  // of one step
  // Wait for every op before the next is launched: a fault then names its op. Hides missing waits.
  bool careful = false;
  // Numbers: every element of a tensor is NaN when it is acquired.
  bool poison = false;
  Plant plant;
};

// A tensor as a step left it. Its op belongs to the schedule.
struct StepTensor {
  std::int32_t rank = 0;
  TensorId id;
  OpInstance at;           // the op that releases it; of a resident one: none
  bool resident = false;   // as it is after the step
  bool before_op = false;  // as the op at `at` finds it, not as it leaves it (LSE)
  HostBytes bytes;
  std::int32_t position = -1;  // of the op in its rank's program
};
struct StepWish {
  // Kinds by name that are read when they are released, and resident ones that are read after the step.
  std::vector<std::string> released, resident;
  bool backward_lse = false;  // the whole lse tensor of every attention backward op, before it
};

struct StepOutcome {
  double loss = 0;  // sum over ranks
  std::int64_t ops = 0;
  std::int64_t collectives = 0;
  std::vector<StepTensor> tensors;  // in launch order, residents last
};

class DeviceExecutor {
 public:
  // `devices`: the device of every rank; the same one for all is a virtual placement; nullptr: a rank of another
  // process, which walks the same launch order for its own ranks. References must outlive it. Throws DeviceFault
  // (kMemory) before anything is launched if the plan does not fit the devices' free memory.
  DeviceExecutor(const DevicePlan& plan, std::vector<Device*> devices, Transport& transport, ExecutorOptions options);

  StepOutcome run_step(const StepWish& wish);
  // Fills ranks, rank_runs, ops, step_ps and counts of the record; keeps what it had measured when it throws.
  void time(RunRecord& record);

  bool is_virtual() const { return virtual_; }
  // Ranks of this process.
  bool is_local(std::int32_t rank) const { return devices_[static_cast<std::size_t>(rank)] != nullptr; }

 private:
  struct Timers {
    EventHandle start = -1, end = -1;
  };
  enum class Mode : std::uint8_t { kNumbers, kAlone, kTogether };

  Device& device(std::int32_t rank) const { return *devices_[static_cast<std::size_t>(rank)]; }
  StreamHandle stream(std::int32_t rank, StreamId id) const {
    return streams_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(id)];
  }
  const DeviceArena& memory(std::int32_t rank) const { return memories_[static_cast<std::size_t>(rank)]; }

  void require_memory() const;
  std::int64_t beside_arena(std::int32_t rank) const;
  void allocate();
  void load();
  void begin_op(std::int32_t rank, std::int32_t position, bool timed);
  void end_op(std::int32_t rank, std::int32_t position, bool timed);
  void run_op(std::int32_t rank, std::int32_t position, Mode mode);
  void launch_calls(std::int32_t rank, std::int32_t position);
  void launch_collective(const Launch& launch);
  void poison_acquired(std::int32_t rank, std::int32_t position);
  void release_starts();
  void issue(const Launch& whole, Mode mode, bool timed);
  void issue_alone(std::int32_t rank, bool timed);
  void collect(std::int32_t rank, std::int32_t position);
  void collect_lse(std::int32_t rank, std::int32_t position);
  void read_tensor(StepTensor tensor, const ArenaTensor& where, StreamHandle stream);
  void begin_step(std::int32_t rank, bool hold);
  void end_step(std::int32_t rank);
  void synchronize();
  CallMember member(std::int32_t rank, std::int32_t position, bool takes_part) const;
  FaultPlace place_of(std::int32_t rank, std::int32_t position) const;
  FaultPlace unfinished_op(std::int32_t rank) const;
  // Runs `body`, and says of what it throws where it was.
  void guarded(std::int32_t rank, std::int32_t position, const std::function<void()>& body) const;

  std::vector<std::int32_t> local_ranks() const;
  void describe(RunRecord& record) const;
  MeasuredOp describe_op(std::int32_t rank, std::int32_t position) const;
  void learn_plant(const RunRecord& record);
  void read_state(RunRecord& record, bool before) const;
  void time_ops(RunRecord& record);
  void time_steps(RunRecord& record);
  void keep_times(std::int32_t rank, RunRecord& record);

  const DevicePlan& plan_;
  std::vector<Device*> devices_;  // by rank
  Transport& transport_;
  ExecutorOptions options_;
  bool virtual_ = false;
  std::vector<DeviceArena> memories_;
  std::vector<std::vector<StreamHandle>> streams_;     // by rank, stream
  std::vector<std::vector<EventHandle>> slots_;        // by rank, event slot
  std::vector<std::vector<EventHandle>> joins_;        // by rank, stream: for begin and end of a step
  std::vector<Timers> steps_;                          // by rank
  std::vector<std::vector<Timers>> timers_;            // by rank, position; made when first timed
  std::vector<std::vector<std::size_t>> measured_;     // by rank, position: index into RunRecord::ops
  std::vector<std::vector<std::int64_t>> planted_ns_;  // by rank, position; empty: nothing is planted
  StepWish wish_;
  StepOutcome outcome_;
  bool loaded_ = false;     // memory holds parameters, or what steps made of them: finite numbers
  bool op_events_ = false;  // ops of the running step lie between events
  std::int64_t held_ = -1;  // launches since the start was held; -1: it is not held
};

// Bytes of one rank beside its arena on that device: op scratch, row lists, losses, and what the libraries hold on its
// streams (Device::workspace_bytes).
std::int64_t bytes_beside_arena(const DevicePlan& plan, std::int32_t rank, const Device& device);

// Records of processes that each ran some of the ranks, as one: ranks and ops in order, the longest of the steps, the
// first failure. All have the same identity and counts. At least one.
RunRecord merge_records(const std::vector<RunRecord>& records);

// A whole run: numbers unless `wish` is empty, then times; a fault ends it and stands in the record, which keeps what
// was measured before. `on_step` is called with the outcome of the numeric step.
RunRecord run_on_devices(const DevicePlan& plan, const std::vector<Device*>& devices, Transport& transport,
                         const ExecutorOptions& options, const StepWish& wish,
                         const std::function<void(StepOutcome, RunRecord&)>& on_step);

}  // namespace longhaul
