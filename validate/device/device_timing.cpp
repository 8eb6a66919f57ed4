// Timing: every op between two events, and whole steps without.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/schedule/agreement.h"
#include "validate/device/device_executor.h"

namespace longhaul {
namespace {

// What a record names as the op's kernel: of its calls the first that is not a copy, else the first.
const DeviceCall* main_call(const LoweredOp& op) {
  for (const DeviceCall& call : op.calls) {
    const bool moves = std::holds_alternative<CopyRowsCall>(call) || std::holds_alternative<FillRowsCall>(call) ||
                       std::holds_alternative<RmsScaleCall>(call);
    if (!moves) return &call;
  }
  return op.calls.empty() ? nullptr : &op.calls.front();
}

bool counts_bytes(OpKind kind) {
  return kind == OpKind::kMergePartials || kind == OpKind::kElementwise || kind == OpKind::kMove ||
         kind == OpKind::kOptimizer;
}

std::int64_t sent_bytes(const Schedule& schedule, const OpInstance& at) {
  if (at.op->collective != CollectiveKind::kExchange) return collective_buffer_bytes(schedule, at);
  std::int64_t bytes = 0;
  for (const PeerBytes& peer : exchange_bytes(schedule, at)) bytes += peer.send;
  return bytes;
}

}  // namespace

MeasuredOp DeviceExecutor::describe_op(std::int32_t rank, std::int32_t position) const {
  const ProgramOp& op = plan_.programs().op(rank, position);
  const Op& of = *op.at.op;
  MeasuredOp measured;
  measured.rank = rank;
  measured.position = position;
  measured.stream = of.stream;
  measured.kind = of.kind;
  measured.pass = of.pass;
  measured.function = of.function;
  measured.segment = op.at.segment;
  measured.index = op.at.index;
  measured.layer = op.at.layer;
  measured.chunk = op.at.chunk;
  measured.label = of.label;
  if (op.call >= 0) {
    measured.collective = of.collective;
    measured.group = plan_.programs().calls[static_cast<std::size_t>(op.call)].group;
    measured.kernel = virtual_ ? "stand-in" : transport_.label(of.collective);
    measured.bytes = sent_bytes(plan_.schedule(), op.at);
    measured.communication = virtual_;
  } else {
    const DeviceCall* call = main_call(plan_.op(rank, position));
    measured.kernel = call == nullptr ? "" : device(rank).kernel_label(*call);
    if (counts_bytes(of.kind)) measured.bytes = touched_bytes(plan_.schedule(), op.at);
  }
  return measured;
}

// The first op that has begun and not ended, by the events around ops; the rank alone where there are none.
FaultPlace DeviceExecutor::unfinished_op(std::int32_t rank) const {
  for (std::int32_t other = 0; other < plan_.ranks() && op_events_; ++other) {
    if (!is_local(other)) continue;
    const std::vector<Timers>& timers = timers_[static_cast<std::size_t>(other)];
    for (std::size_t i = 0; i < timers.size(); ++i) {
      if (timers[i].start < 0 || !device(other).reached(timers[i].start) || device(other).reached(timers[i].end)) {
        continue;
      }
      return place_of(other, static_cast<std::int32_t>(i));
    }
  }
  return {rank, -1, "", ""};
}

std::vector<std::int32_t> DeviceExecutor::local_ranks() const {
  std::vector<std::int32_t> ranks;
  for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
    if (is_local(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void DeviceExecutor::describe(RunRecord& record) const {
  record.placement = virtual_ ? RankPlacement::kVirtual : RankPlacement::kReal;
  record.ranks = plan_.ranks();
  record.warmups = options_.warmups;
  record.repeats = options_.repeats;
  record.rank_runs.clear();
  for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
    if (!is_local(rank)) continue;
    const RankNeed need = plan_.need(rank);
    RankRun run;
    run.rank = rank;
    run.device = virtual_ ? 0 : rank;
    run.resident_bytes = plan_.arena(rank).resident_bytes;
    run.planned_peak_bytes = plan_.arena(rank).peak_bytes;
    run.arena_bytes = need.arena_bytes;
    run.scratch_bytes = beside_arena(rank);
    record.rank_runs.push_back(std::move(run));
  }
}

// All streams of a rank start behind one timed event. Warm-up steps are not held: libraries make plans and take memory
// in them, which may wait for the device.
void DeviceExecutor::begin_step(std::int32_t rank, bool hold) {
  const StreamHandle first = stream(rank, kComputeStream);
  if (hold) {
    device(rank).hold_start(first);
    held_ = 0;
  }
  device(rank).begin_clock(first);
  const EventHandle start = steps_[static_cast<std::size_t>(rank)].start;
  device(rank).record(start, first);
  for (std::int32_t s = 1; s < plan_.programs().streams; ++s) {
    device(rank).wait(stream(rank, static_cast<StreamId>(s)), start);
  }
}

void DeviceExecutor::end_step(std::int32_t rank) {
  const StreamHandle first = stream(rank, kComputeStream);
  for (std::int32_t s = 1; s < plan_.programs().streams; ++s) {
    const EventHandle join = joins_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(s)];
    device(rank).record(join, stream(rank, static_cast<StreamId>(s)));
    device(rank).wait(first, join);
  }
  device(rank).record(steps_[static_cast<std::size_t>(rank)].end, first);
  device(rank).end_clock(first);
}

void DeviceExecutor::keep_times(std::int32_t rank, RunRecord& record) {
  const EventHandle start = steps_[static_cast<std::size_t>(rank)].start;
  const std::vector<Timers>& timers = timers_[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < timers.size(); ++i) {
    const std::size_t index = measured_[static_cast<std::size_t>(rank)][i];
    if (index == SIZE_MAX) continue;
    MeasuredOp& op = record.ops[index];
    op.start_ps.push_back(device(rank).picoseconds_between(start, timers[i].start));
    op.end_ps.push_back(device(rank).picoseconds_between(start, timers[i].end));
  }
}

bool Plant::hits(const Op& op) const {
  return !kernel.empty() && (kernel == op.label || kernel == fmt::format("{} ({})", op.label, to_string(op.pass)));
}

// Medians of a few repeats without the plant are what its share is of.
void DeviceExecutor::learn_plant(const RunRecord& record) {
  constexpr std::int32_t kLearningRepeats = 5;
  RunRecord learned = record;
  const std::int32_t repeats = std::exchange(options_.repeats, kLearningRepeats);
  time_ops(learned);
  options_.repeats = repeats;
  for (const std::vector<ProgramOp>& program : plan_.programs().ranks) planted_ns_.emplace_back(program.size(), 0);
  for (const MeasuredOp& op : learned.ops) {
    if (!options_.plant.hits(*plan_.programs().op(op.rank, op.position).at.op)) continue;
    std::vector<std::int64_t> lengths;
    for (std::size_t r = 0; r < op.start_ps.size(); ++r) lengths.push_back(op.end_ps[r] - op.start_ps[r]);
    std::nth_element(lengths.begin(), lengths.begin() + kLearningRepeats / 2, lengths.end());
    const double nanoseconds = static_cast<double>(lengths[kLearningRepeats / 2]) * 1e-3 * options_.plant.share;
    planted_ns_[static_cast<std::size_t>(op.rank)][static_cast<std::size_t>(op.position)] = std::llround(nanoseconds);
  }
}

// Of the first device of this process: on virtual ranks there is no other.
void DeviceExecutor::read_state(RunRecord& record, bool before) const {
  const DeviceReadings now = device(local_ranks().front()).readings();
  HardwareInfo& into = record.hardware;
  (before ? into.sm_clock_before_mhz : into.sm_clock_after_mhz) = now.sm_clock_mhz;
  (before ? into.temperature_before_c : into.temperature_after_c) = now.temperature_c;
  (before ? into.power_before_w : into.power_after_w) = now.power_w;
}

void DeviceExecutor::time_ops(RunRecord& record) {
  for (std::int32_t repeat = -options_.warmups; repeat < options_.repeats; ++repeat) {
    if (repeat == 0) read_state(record, true);
    if (virtual_) {
      for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
        begin_step(rank, repeat >= 0);
        issue_alone(rank, true);
        end_step(rank);
        release_starts();
        synchronize();
        if (repeat >= 0) keep_times(rank, record);
      }
      continue;
    }
    for (const std::int32_t rank : local_ranks()) begin_step(rank, repeat >= 0);
    for (const Launch& launch : plan_.order()) issue(launch, Mode::kTogether, true);
    for (const std::int32_t rank : local_ranks()) end_step(rank);
    release_starts();
    synchronize();
    if (repeat < 0) continue;
    for (const std::int32_t rank : local_ranks()) keep_times(rank, record);
  }
}

void DeviceExecutor::time_steps(RunRecord& record) {
  const auto keep = [&](RankRun& run) {
    const Timers& timers = steps_[static_cast<std::size_t>(run.rank)];
    run.step_ps.push_back(device(run.rank).picoseconds_between(timers.start, timers.end));
    run.clock_mhz.push_back(device(run.rank).clock_mhz());
    return run.step_ps.back();
  };
  // Plans and memory of libraries are there since the ops were timed.
  for (std::int32_t repeat = -std::min(1, options_.warmups); repeat < options_.repeats; ++repeat) {
    if (virtual_) {
      for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
        begin_step(rank, repeat >= 0);
        issue_alone(rank, false);
        end_step(rank);
        release_starts();
        synchronize();
        if (repeat >= 0) keep(record.rank_runs[static_cast<std::size_t>(rank)]);
      }
      continue;
    }
    for (const std::int32_t rank : local_ranks()) begin_step(rank, repeat >= 0);
    for (const Launch& launch : plan_.order()) issue(launch, Mode::kTogether, false);
    for (const std::int32_t rank : local_ranks()) end_step(rank);
    release_starts();
    synchronize();
    if (repeat < 0) continue;
    std::int64_t longest = 0;
    for (RankRun& run : record.rank_runs) longest = std::max(longest, keep(run));
    record.step_ps.push_back(longest);
  }
}

void DeviceExecutor::time(RunRecord& record) {
  outcome_ = {};
  describe(record);
  measured_.clear();
  record.ops.clear();
  for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
    const std::vector<ProgramOp>& program = plan_.programs().ranks[static_cast<std::size_t>(rank)];
    std::vector<std::size_t>& indices = measured_.emplace_back(program.size(), SIZE_MAX);
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (program[i].empty || !is_local(rank)) continue;
      indices[i] = record.ops.size();
      record.ops.push_back(describe_op(rank, static_cast<std::int32_t>(i)));
    }
  }
  if (!loaded_) load();
  op_events_ = true;
  planted_ns_.clear();
  if (!options_.plant.kernel.empty()) learn_plant(record);
  time_ops(record);
  op_events_ = false;
  time_steps(record);
  read_state(record, false);
  if (virtual_) record.device_peak_bytes = device(0).peak_bytes();
  for (RankRun& run : record.rank_runs) run.device_peak_bytes = virtual_ ? 0 : device(run.rank).peak_bytes();
}

RunRecord merge_records(const std::vector<RunRecord>& records) {
  RunRecord merged = records.front();
  for (std::size_t i = 1; i < records.size(); ++i) {
    const RunRecord& other = records[i];
    merged.rank_runs.insert(merged.rank_runs.end(), other.rank_runs.begin(), other.rank_runs.end());
    merged.ops.insert(merged.ops.end(), other.ops.begin(), other.ops.end());
    merged.hardware.devices += other.hardware.devices;
    if (merged.failure.kind.empty()) merged.failure = other.failure;
    merged.step_ps.resize(std::min(merged.step_ps.size(), other.step_ps.size()));
    for (std::size_t k = 0; k < merged.step_ps.size(); ++k) {
      merged.step_ps[k] = std::max(merged.step_ps[k], other.step_ps[k]);
    }
  }
  std::stable_sort(merged.rank_runs.begin(), merged.rank_runs.end(),
                   [](const RankRun& a, const RankRun& b) { return a.rank < b.rank; });
  std::stable_sort(merged.ops.begin(), merged.ops.end(), [](const MeasuredOp& a, const MeasuredOp& b) {
    return std::pair(a.rank, a.position) < std::pair(b.rank, b.position);
  });
  return merged;
}

RunRecord run_on_devices(const DevicePlan& plan, const std::vector<Device*>& devices, Transport& transport,
                         const ExecutorOptions& options, const StepWish& wish,
                         const std::function<void(StepOutcome, RunRecord&)>& on_step) {
  RunRecord record;
  record.identity.fingerprint = schedule_fingerprint(plan.schedule());
  record.identity.seed = options.parameter_seed;
  record.ranks = plan.ranks();
  std::vector<Device*> local;  // each once
  for (Device* device : devices) {
    if (device != nullptr && std::find(local.begin(), local.end(), device) == local.end()) local.push_back(device);
  }
  record.hardware = local.front()->hardware();
  record.hardware.devices = static_cast<std::int32_t>(local.size());
  try {
    DeviceExecutor executor(plan, devices, transport, options);
    if (on_step) on_step(executor.run_step(wish), record);
    if (options.repeats > 0) executor.time(record);
  } catch (const DeviceFault& fault) {
    record.failure = {to_string(fault.kind()), fault.why(),   fault.at().rank,
                      fault.at().position,     fault.at().op, fault.at().kernel};
    const bool stopped = transport.abort() && fault.kind() != FaultKind::kKernel;
    if (fault.abandoned() && !stopped) {
      for (Device* device : local) device->abandon();
    }
  }
  return record;
}

}  // namespace longhaul
