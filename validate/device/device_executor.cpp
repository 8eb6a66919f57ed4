// Launching: what the host thread does for one op, one collective, one step. Timing is in device_timing.cpp.
#include "validate/device/device_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/schedule/agreement.h"
#include "validate/device/initial_values.h"

namespace longhaul {
namespace {

constexpr std::size_t kEventSlots = 128;
constexpr std::int64_t kHeldLaunches = 200;  // CUDA queues about a thousand before a launch waits

std::span<const std::byte> bytes_of(const std::vector<std::int32_t>& values) {
  return std::as_bytes(std::span<const std::int32_t>(values));
}

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

DeviceExecutor::DeviceExecutor(const DevicePlan& plan, std::vector<Device*> devices, Transport& transport,
                               ExecutorOptions options)
    : plan_(plan), devices_(std::move(devices)), transport_(transport), options_(options) {
  LH_ASSERT(static_cast<std::int32_t>(devices_.size()) == plan.ranks(), "{} devices for {} ranks", devices_.size(),
            plan.ranks());
  const std::set<Device*> distinct(devices_.begin(), devices_.end());
  virtual_ = devices_.size() > 1 && distinct.size() == 1;
  const auto local = devices_.size() - static_cast<std::size_t>(std::count(devices_.begin(), devices_.end(), nullptr));
  const std::size_t used = distinct.size() - distinct.count(nullptr);
  LH_ASSERT(used > 0 && (virtual_ || used == local), "{} local ranks on {} devices", local, used);
  for (std::int32_t index = 0; index < plan.calls(); ++index) transport_.announce(plan.call(index));
  require_memory();
  allocate();
}

void DeviceExecutor::require_memory() const {
  for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
    if (virtual_ && rank > 0) break;
    if (!is_local(rank)) continue;
    std::int64_t need = 0, arenas = 0;
    for (std::int32_t other = 0; other < plan_.ranks(); ++other) {
      if (!virtual_ && other != rank) continue;
      need += plan_.need(other).arena_bytes + beside_arena(other);
      arenas += plan_.need(other).arena_bytes;
    }
    const std::int64_t free = device(rank).free_bytes();
    if (need <= free) continue;
    throw DeviceFault(
        FaultKind::kMemory, {virtual_ ? -1 : rank, -1, "", ""},
        fmt::format("the plan needs {} bytes ({} of them tensors{}), the device has {} free; fewer tokens, "
                    "layers or ranks fit",
                    need, arenas, virtual_ ? fmt::format(" of {} ranks", plan_.ranks()) : "", free));
  }
}

std::int64_t DeviceExecutor::beside_arena(std::int32_t rank) const {
  return bytes_beside_arena(plan_, rank, device(rank)) + transport_.scratch_bytes(rank);
}

std::int64_t bytes_beside_arena(const DevicePlan& plan, std::int32_t rank, const Device& device) {
  const auto streams = static_cast<std::size_t>(plan.programs().streams);
  std::vector<std::int64_t> gemm(streams, 0), attention(streams, 0);
  const std::vector<ProgramOp>& program = plan.programs().ranks[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < program.size(); ++i) {
    const auto stream = static_cast<std::size_t>(program[i].at.op->stream);
    for (const DeviceCall& call : plan.op(rank, static_cast<std::int32_t>(i)).calls) {
      std::int64_t& most = std::holds_alternative<GemmCall>(call) ? gemm[stream] : attention[stream];
      most = std::max(most, device.workspace_bytes(call));
    }
  }
  std::int64_t bytes = plan.need(rank).beside_arena();
  for (std::size_t s = 0; s < streams; ++s) bytes += gemm[s] + attention[s];
  return bytes;
}

void DeviceExecutor::allocate() {
  for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
    if (!is_local(rank)) {
      memories_.emplace_back();
      streams_.emplace_back(static_cast<std::size_t>(plan_.programs().streams), -1);
      joins_.emplace_back();
      slots_.emplace_back();
      steps_.emplace_back();
      timers_.emplace_back();
      continue;
    }
    const RankNeed need = plan_.need(rank);
    Device& on = device(rank);
    DeviceArena memory;
    memory.arena = on.allocate(need.arena_bytes);
    memory.constants = on.allocate(need.constant_bytes);
    memory.losses = on.allocate(need.loss_bytes);
    for (const std::int64_t bytes : need.scratch_bytes) memory.scratch.push_back(on.allocate(bytes));
    on.write(memory.constants, bytes_of(plan_.constants(rank)));
    memories_.push_back(std::move(memory));
    std::vector<StreamHandle>& streams = streams_.emplace_back();
    std::vector<EventHandle>& joins = joins_.emplace_back();
    for (std::int32_t s = 0; s < plan_.programs().streams; ++s) {
      streams.push_back(on.make_stream());
      joins.push_back(on.make_event(false));
    }
    std::vector<EventHandle>& slots = slots_.emplace_back();
    for (std::size_t slot = 0; slot < kEventSlots; ++slot) slots.push_back(-1);
    for (const ProgramOp& op : plan_.programs().ranks[static_cast<std::size_t>(rank)]) {
      if (op.at.op->record == kNoEvent) continue;
      EventHandle& slot = slots[static_cast<std::size_t>(op.at.op->record)];
      if (slot < 0) slot = on.make_event(false);
    }
    steps_.push_back({on.make_event(true), on.make_event(true)});
    timers_.emplace_back(plan_.programs().ranks[static_cast<std::size_t>(rank)].size());
  }
}

// Parameters and state as before the first step. Other memory is all ones, a NaN in every type, where tensors are
// poisoned, else zero: unwritten rows must stay finite, since kernels multiply masked ones by zero.
void DeviceExecutor::load() {
  std::vector<std::int32_t> ranks;
  for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
    if (!is_local(rank)) continue;
    ranks.push_back(rank);
    const RankNeed need = plan_.need(rank);
    const std::uint8_t fill = options_.poison ? 0xFF : 0;
    device(rank).fill_bytes(memory(rank).arena, need.arena_bytes, fill);
    device(rank).fill_bytes(memory(rank).losses, need.loss_bytes, fill);
    for (std::size_t s = 0; s < need.scratch_bytes.size(); ++s) {
      device(rank).fill_bytes(memory(rank).scratch[s], need.scratch_bytes[s], fill);
    }
  }
  load_residents(plan_.schedule(), ranks, options_.parameter_seed,
                 [&](std::int32_t rank, const TensorId& id, const std::vector<std::byte>& bytes) {
                   const ArenaTensor* tensor = plan_.arena(rank).find(id, kBeforeStep);
                   LH_ASSERT(tensor != nullptr, "rank {}: a resident tensor without a place", rank);
                   if (bytes.size() <= static_cast<std::size_t>(tensor->bytes)) {
                     device(rank).write(memory(rank).arena + tensor->offset, bytes);
                   }
                   const std::int64_t rest = tensor->bytes + kArenaSlack - static_cast<std::int64_t>(bytes.size());
                   device(rank).fill_bytes(memory(rank).arena + tensor->offset + bytes.size(), rest, 0);
                 });
  loaded_ = !options_.poison;
}

FaultPlace DeviceExecutor::place_of(std::int32_t rank, std::int32_t position) const {
  FaultPlace at{rank, position, "", ""};
  if (position < 0) return at;
  const ProgramOp& op = plan_.programs().op(rank, position);
  at.op = place(op.at);
  at.kernel = to_string(plan_.op(rank, position).kernel);
  return at;
}

void DeviceExecutor::guarded(std::int32_t rank, std::int32_t position, const std::function<void()>& body) const {
  try {
    body();
  } catch (const DeviceFault& fault) {
    if (!fault.at().op.empty()) throw;
    FaultPlace at = place_of(rank, position);
    if (!fault.at().kernel.empty()) at.kernel = fault.at().kernel;
    throw DeviceFault(fault.kind(), std::move(at), fault.why());
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception& error) {
    throw DeviceFault(fault_kind_of(error.what()), place_of(rank, position), error.what());
  }
}

void DeviceExecutor::begin_op(std::int32_t rank, std::int32_t position, bool timed) {
  const Op& op = *plan_.programs().op(rank, position).at.op;
  const StreamHandle on = stream(rank, op.stream);
  for (const EventSlot slot : op.waits) {
    const EventHandle event = slots_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(slot)];
    if (event >= 0) device(rank).wait(on, event);
  }
  if (!timed) return;
  Timers& timers = timers_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(position)];
  if (timers.start < 0) timers = {device(rank).make_event(true), device(rank).make_event(true)};
  device(rank).record(timers.start, on);
}

void DeviceExecutor::end_op(std::int32_t rank, std::int32_t position, bool timed) {
  const Op& op = *plan_.programs().op(rank, position).at.op;
  const StreamHandle on = stream(rank, op.stream);
  if (timed) {
    device(rank).record(timers_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(position)].end, on);
  }
  if (op.record != kNoEvent) {
    device(rank).record(slots_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(op.record)], on);
  }
}

void DeviceExecutor::launch_calls(std::int32_t rank, std::int32_t position) {
  const Op& op = *plan_.programs().op(rank, position).at.op;
  for (const DeviceCall& call : plan_.op(rank, position).calls) {
    guarded(rank, position, [&] { device(rank).launch(call, memory(rank), op.stream, stream(rank, op.stream)); });
    if (held_ >= 0 && ++held_ == kHeldLaunches) {
      release_starts();
    }
  }
  if (planted_ns_.empty()) return;
  const std::int64_t longer = planted_ns_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(position)];
  if (longer > 0) device(rank).delay(std::chrono::nanoseconds(longer), stream(rank, op.stream));
}

void DeviceExecutor::release_starts() {
  const std::set<Device*> distinct(devices_.begin(), devices_.end());
  for (Device* each : distinct) {
    if (each != nullptr) each->release_start();
  }
  held_ = -1;
}

// Numbers alone: what the op acquires holds NaN until something is written.
void DeviceExecutor::poison_acquired(std::int32_t rank, std::int32_t position) {
  const ProgramOp& op = plan_.programs().op(rank, position);
  const StreamHandle on = stream(rank, op.at.op->stream);
  std::vector<TensorId> acquired;
  for (const TensorRef& ref : op.at.op->acquire) resolve_all(op.at, ref, acquired);
  for (const TensorId& id : acquired) {
    const ArenaTensor* tensor = plan_.arena(rank).find(id, position);
    const std::int64_t words = tensor->bytes / 2;
    const Rows all{{MemoryPart::kArena, tensor->offset}, ElementType::kBf16, 1, words, words, kNoIndex};
    device(rank).launch(FillRowsCall{all, std::numeric_limits<float>::quiet_NaN()}, memory(rank), op.at.op->stream, on);
  }
}

// An op but a non-empty collective, between begin_op and end_op.
void DeviceExecutor::run_op(std::int32_t rank, std::int32_t position, Mode mode) {
  const ProgramOp& op = plan_.programs().op(rank, position);
  const StreamHandle on = stream(rank, op.at.op->stream);
  if (plan_.op(rank, position).kernel == MappedKernel::kGiven) {
    for (const View& view : op.at.op->operands) {
      const TensorId id = resolve(op.at, view.tensor);
      const ArenaTensor* tensor = plan_.arena(rank).find(id, position);
      if (mode == Mode::kNumbers) {
        device(rank).write_async(memory(rank).arena + tensor->offset, given_bytes(plan_.schedule(), op.at, view), on);
      } else {
        const TensorKind& kind = plan_.schedule().tensors[static_cast<std::size_t>(id.kind)];
        const std::int64_t elements = tensor->bytes / element_bytes(kind.type);
        const Rows all{{MemoryPart::kArena, tensor->offset}, kind.type, 1, elements, elements, kNoIndex};
        device(rank).noise(placed(all, memory(rank), op.at.op->stream), static_cast<std::uint32_t>(position), on);
      }
    }
  }
  if (op.empty) return;
  if (mode == Mode::kNumbers && wish_.backward_lse && op.at.op->kind == OpKind::kAttention &&
      op.at.op->pass == Pass::kBackward) {
    collect_lse(rank, position);
  }
  launch_calls(rank, position);
  ++outcome_.ops;
}

CallMember DeviceExecutor::member(std::int32_t rank, std::int32_t position, bool takes_part) const {
  const Op& op = *plan_.programs().op(rank, position).at.op;
  return {rank,          takes_part, devices_[static_cast<std::size_t>(rank)],
          &memory(rank), op.stream,  stream(rank, op.stream)};
}

void DeviceExecutor::launch_collective(const Launch& launch) {
  const LoweredCall& call = plan_.call(launch.call);
  const GroupCall& group = plan_.programs().calls[static_cast<std::size_t>(launch.call)];
  std::vector<CallMember> members;
  for (std::size_t m = 0; m < call.ranks.size(); ++m) {
    const std::int32_t rank = call.ranks[m];
    const bool takes_part = !plan_.programs().op(rank, group.positions[m]).empty;
    members.push_back(member(rank, group.positions[m], takes_part));
  }
  const LaunchPlace& first = launch.places.front();
  guarded(first.rank, first.position, [&] { transport_.launch(call, members); });
  outcome_.ops += static_cast<std::int64_t>(launch.places.size());
  ++outcome_.collectives;
}

void DeviceExecutor::issue(const Launch& whole, Mode mode, bool timed) {
  Launch launch = whole;  // the part of this process
  std::erase_if(launch.places, [&](const LaunchPlace& at) { return !is_local(at.rank); });
  if (launch.places.empty()) return;
  const auto is_timed = [&](const LaunchPlace& at) {
    return timed && !plan_.programs().op(at.rank, at.position).empty;
  };
  for (const LaunchPlace& at : launch.places) {
    begin_op(at.rank, at.position, is_timed(at));
    if (mode == Mode::kNumbers && options_.poison) poison_acquired(at.rank, at.position);
  }
  if (launch.call < 0) {
    run_op(launch.places.front().rank, launch.places.front().position, mode);
  } else {
    launch_collective(launch);
  }
  for (const LaunchPlace& at : launch.places) {
    if (mode == Mode::kNumbers) collect(at.rank, at.position);
    end_op(at.rank, at.position, is_timed(at));
  }
  if (!options_.careful || mode != Mode::kNumbers) return;
  const LaunchPlace& first = launch.places.front();
  guarded(first.rank, first.position, [&] { device(first.rank).synchronize(options_.timeout); });
}

void DeviceExecutor::issue_alone(std::int32_t rank, bool timed) {
  const std::vector<ProgramOp>& program = plan_.programs().ranks[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < program.size(); ++i) {
    const auto position = static_cast<std::int32_t>(i);
    const bool runs = !program[i].empty;
    begin_op(rank, position, timed && runs);
    if (program[i].call >= 0) {
      if (runs) launch_stand_in(plan_.call(program[i].call), member(rank, position, true));
    } else {
      run_op(rank, position, Mode::kAlone);
    }
    end_op(rank, position, timed && runs);
  }
}

void DeviceExecutor::read_tensor(StepTensor tensor, const ArenaTensor& where, StreamHandle on) {
  tensor.bytes = fresh_bytes(where.bytes);
  const std::int32_t rank = tensor.rank;
  outcome_.tensors.push_back(std::move(tensor));
  // The buffer stays where it is when the list of tensors grows.
  device(rank).read_async(outcome_.tensors.back().bytes, memory(rank).arena + where.offset, on);
}

void DeviceExecutor::collect(std::int32_t rank, std::int32_t position) {
  if (wish_.released.empty()) return;
  const ProgramOp& op = plan_.programs().op(rank, position);
  std::vector<TensorId> released;
  for (const TensorRef& ref : op.at.op->release) resolve_all(op.at, ref, released);
  for (const TensorId& id : released) {
    if (!holds(wish_.released, plan_.schedule().tensors[static_cast<std::size_t>(id.kind)].name)) continue;
    read_tensor({rank, id, op.at, false, false, {}, position}, *plan_.arena(rank).find(id, position),
                stream(rank, op.at.op->stream));
  }
}

void DeviceExecutor::collect_lse(std::int32_t rank, std::int32_t position) {
  const ProgramOp& op = plan_.programs().op(rank, position);
  const TensorId id = resolve(op.at, op.at.op->lse.tensor);
  read_tensor({rank, id, op.at, false, true, {}, position}, *plan_.arena(rank).find(id, position),
              stream(rank, op.at.op->stream));
}

StepOutcome DeviceExecutor::run_step(const StepWish& wish) {
  wish_ = wish;
  outcome_ = {};
  load();
  for (const Launch& launch : plan_.order()) issue(launch, Mode::kNumbers, false);
  synchronize();
  for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
    if (!is_local(rank)) continue;
    std::vector<float> losses(static_cast<std::size_t>(plan_.loss_rows(rank)));
    device(rank).read(std::as_writable_bytes(std::span<float>(losses)), memory(rank).losses);
    double sum = 0;
    for (const float loss : losses) sum += static_cast<double>(loss);
    const std::int64_t counted = counted_tokens(*plan_.schedule().batch);
    if (counted > 0) outcome_.loss += sum / static_cast<double>(counted);
    for (const ArenaTensor& tensor : plan_.arena(rank).tensors) {
      if (tensor.acquired != kBeforeStep) continue;
      if (!holds(wish.resident, plan_.schedule().tensors[static_cast<std::size_t>(tensor.id.kind)].name)) continue;
      StepTensor read{rank, tensor.id, {}, true, false, fresh_bytes(tensor.bytes), -1};
      device(rank).read(read.bytes, memory(rank).arena + tensor.offset);
      outcome_.tensors.push_back(std::move(read));
    }
  }
  wish_ = {};
  return std::move(outcome_);
}

void DeviceExecutor::synchronize() {
  std::set<Device*> done;
  for (std::int32_t rank = 0; rank < plan_.ranks(); ++rank) {
    if (!is_local(rank) || !done.insert(&device(rank)).second) continue;
    try {
      guarded(virtual_ ? -1 : rank, -1, [&] { device(rank).synchronize(options_.timeout); });
    } catch (const DeviceFault& fault) {
      if (fault.kind() != FaultKind::kHang) throw;
      throw DeviceFault(FaultKind::kHang, unfinished_op(fault.at().rank), fault.why());
    }
  }
  guarded(-1, -1, [&] { transport_.check(); });
}

}  // namespace longhaul
