// What the engine sets up before time zero, and what it reports after the end.
#include <algorithm>
#include <bit>

#include "sim/core/error.h"
#include "sim/core/invariant.h"
#include "sim/executor/engine.h"

namespace longhaul {

Engine::Engine(const Schedule& schedule, const OpDurations& durations, CollectiveNetwork& network,
               const SimulationOptions& options)
    : schedule_(&schedule),
      durations_(&durations),
      network_(&network),
      options_(&options),
      code_(schedule, durations),
      stream_count_(schedule.streams()),
      pass_capacity_(std::bit_ceil(static_cast<std::uint32_t>(std::max(options.launch_queue_passes, 1)))),
      import_stride_(static_cast<std::size_t>(code_.most_imports())),
      slot_stride_(static_cast<std::size_t>(code_.event_slots())) {
  LH_ASSERT(options.launch_queue_ops >= 1 && options.launch_queue_passes >= 1, "the launch queue must hold something");
  set_up_ranks();
  set_up_groups();
  set_up_overlap();
}

void Engine::set_up_ranks() {
  const std::size_t count = schedule_->ranks.size();
  const auto streams = static_cast<std::size_t>(stream_count_);
  ranks_.resize(count);
  streams_.resize(count * streams);
  passes_.resize(count * pass_capacity_);
  bases_.resize(count * pass_capacity_ * streams);
  imports_.resize(count * pass_capacity_ * import_stride_);
  slots_.resize(count * slot_stride_);
  issued_.resize(count * streams);
  memory_.resize(count);
  totals_.ranks.resize(count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    const auto id = static_cast<std::int32_t>(rank);
    ranks_[rank].runs = runner_of(id) == id;
    if (ranks_[rank].runs) hold_residents(id);
  }
  if (options_->sink == nullptr) return;
  for (const std::int32_t rank : options_->trace.ranks) {
    LH_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < count, "no rank {} to trace", rank);
    Rank& state = ranks_[static_cast<std::size_t>(rank)];
    state.traced = state.runs;
    if (state.traced) report_memory(rank, Time::zero());
  }
}

void Engine::hold_residents(std::int32_t rank) {
  const RankInfo& info = schedule_->ranks[static_cast<std::size_t>(rank)];
  RankMemory& memory = memory_[static_cast<std::size_t>(rank)];
  OpInstance nowhere;
  nowhere.rank = rank;
  nowhere.chunk = kNoChunk;
  for (const TensorRef& ref : schedule_->programs[static_cast<std::size_t>(info.program)].resident) {
    const TensorId id = resolve(nowhere, ref);
    LH_ASSERT(memory.tensors.insert(id.key(), true), "rank {}: {} is resident twice", rank, describe_key(id.key()));
    memory.hold(tensor_bytes(*schedule_, rank, id), make_use(*schedule_, ref).category);
  }
  totals(rank).resident_bytes = memory.total();
  memory.note_peak(Time::zero(), totals(rank));
}

void Engine::set_up_groups() {
  const std::size_t roles = schedule_->roles.size();
  member_slot_.assign(schedule_->ranks.size() * roles, -1);
  meetings_.resize(schedule_->groups.size());
  for (std::size_t g = 0; g < schedule_->groups.size(); ++g) {
    const std::vector<std::int32_t>& ranks = schedule_->groups[g].members;
    Meeting& meeting = meetings_[g];
    meeting.members_begin = static_cast<std::int32_t>(members_.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (!ranks_[static_cast<std::size_t>(ranks[i])].runs) continue;
      members_.push_back({ranks[i], static_cast<std::int32_t>(i), -1});
      const RankInfo& info = schedule_->ranks[static_cast<std::size_t>(ranks[i])];
      for (std::size_t role = 0; role < info.groups.size(); ++role) {
        if (info.groups[role] != static_cast<GroupId>(g)) continue;
        member_slot_[static_cast<std::size_t>(ranks[i]) * roles + role] =
            static_cast<std::int32_t>(members_.size()) - 1;
      }
    }
    meeting.member_count = static_cast<std::int32_t>(members_.size()) - meeting.members_begin;
    if (meeting.member_count == 0) continue;  // a copy of another group
    for (const std::int32_t rank : ranks) {
      LH_ASSERT(std::find(ranks.begin(), ranks.end(), runner_of(rank)) != ranks.end(),
                "group {}: rank {} is folded into rank {}, which is not a member", g, rank, runner_of(rank));
    }
  }
}

OpInstance Engine::instance(std::int32_t rank, const Iteration& pass, std::size_t index) const {
  OpInstance at;
  at.op = pass.code->ops[index].op;
  at.shape = pass.shape;
  at.rank = rank;
  at.chunk = pass.chunk;
  at.layer = pass.layer;
  at.segment = pass.segment;
  at.index = static_cast<std::int16_t>(index);
  return at;
}

GroupId Engine::group_in(std::int32_t rank, int id) const {
  const Stream& stream = stream_of(rank, id);
  const Iteration& pass = pass_of(rank, stream);
  const Op& op = *pass.code->ops[op_index(stream, id, pass)].op;
  return schedule_->ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(op.role)];
}

std::string Engine::place(std::int32_t rank, const Iteration& pass, std::size_t index) const {
  return fmt::format("rank {}, segment {}, layer {}, chunk {}, `{}`", rank,
                     schedule_->segments[static_cast<std::size_t>(pass.segment)].name, pass.layer, pass.chunk,
                     pass.code->ops[index].op->label);
}

void Engine::trace(std::int32_t rank, int id, const Iteration& pass, std::size_t index, Time now) {
  if (pass.chunk >= options_->trace.chunks_below) return;
  const Stream& stream = stream_of(rank, id);
  const Op& op = *pass.code->ops[index].op;
  OpRecord record;
  record.rank = rank;
  record.stream = static_cast<StreamId>(id);
  record.kind = op.kind;
  record.pass = op.pass;
  record.label = op.label;
  record.segment = pass.segment;
  record.index = static_cast<std::int16_t>(index);
  record.chunk = pass.chunk;
  record.layer = pass.layer;
  if (op.kind == OpKind::kCollective) {
    record.group = schedule_->ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(op.role)];
  }
  const OpCost& cost = pass.costs->ops[index];
  record.issue = issue_time(pass, index);
  record.host = record.issue - Time::from_ps(cost.issue);
  if (cost.stall >= 0) record.stalled = Time::from_ps(stream.start + cost.stall);
  record.arrival = Time::from_ps(stream.arrival);
  record.called = op.kind == OpKind::kCollective ? Time::from_ps(stream.updated) : record.arrival;
  record.start = Time::from_ps(stream.start);
  record.end = now;
  options_->sink->op(record);
}

Totals Engine::finish_totals() {
  const auto count = static_cast<std::int32_t>(ranks_.size());
  for (std::int32_t rank = 0; rank < count; ++rank) {
    const Rank& state = ranks_[static_cast<std::size_t>(rank)];
    if (state.runs && state.cause != Cause::kDone) report_deadlock();
    if (state.runs) check_residents(rank);
  }
  for (std::int32_t rank = 0; rank < count; ++rank) {
    if (ranks_[static_cast<std::size_t>(rank)].runs && totals(rank).end > totals_.step) {
      totals_.step = totals(rank).end;
      totals_.critical_rank = rank;
    }
  }
  for (std::int32_t rank = 0; rank < count; ++rank) {
    if (!ranks_[static_cast<std::size_t>(rank)].runs) continue;
    RankTotals& sums = totals(rank);
    sums.tail = totals_.step - sums.end;
    const Time parts = sums.busy() + sums.contention + sums.idle();
    LH_ASSERT(parts == totals_.step, "rank {}: parts sum to {} ps, the step is {} ps", rank, parts.ps(),
              totals_.step.ps());
  }
  for (std::int32_t rank = 0; rank < count; ++rank) {
    if (runner_of(rank) != rank) totals(rank) = totals(runner_of(rank));
  }
  totals_.link_bytes = network_->link_bytes();
  totals_.link_peak_utilisation = network_->link_peak_utilisation();
  return std::move(totals_);
}

// Memory is where it began: the resident tensors and nothing else.
void Engine::check_residents(std::int32_t rank) {
  const RankInfo& info = schedule_->ranks[static_cast<std::size_t>(rank)];
  const RankMemory& memory = memory_[static_cast<std::size_t>(rank)];
  OpInstance nowhere;
  nowhere.rank = rank;
  nowhere.chunk = kNoChunk;
  const std::vector<TensorRef>& residents = schedule_->programs[static_cast<std::size_t>(info.program)].resident;
  for (const TensorRef& ref : residents) {
    const std::uint64_t key = resolve(nowhere, ref).key();
    LH_ASSERT(memory.tensors.holds(key), "rank {}: resident {} was released", rank, describe_key(key));
  }
  LH_ASSERT(memory.tensors.size() == residents.size() && memory.total() == totals(rank).resident_bytes,
            "rank {} ends with {} tensors and {} bytes, it began with {} and {}", rank, memory.tensors.size(),
            memory.total(), residents.size(), totals(rank).resident_bytes);
}

std::string Engine::waiting_text(std::int32_t rank, int id) const {
  const Stream& stream = stream_of(rank, id);
  const Iteration& pass = pass_of(rank, stream);
  const std::size_t index = op_index(stream, id, pass);
  std::string text = place(rank, pass, index);
  if (stream.state == StreamState::kArrived) {
    const Op& op = *pass.code->ops[index].op;
    const GroupId group = schedule_->ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(op.role)];
    const Meeting& meeting = meetings_[static_cast<std::size_t>(group)];
    text += fmt::format(" waits in group {} ({} of {} have arrived), missing", group, meeting.arrived,
                        meeting.member_count);
    int named = 0;
    for (std::int32_t i = 0; i < meeting.member_count && named < 4; ++i) {
      const MeetingMember& member = members_[static_cast<std::size_t>(meeting.members_begin + i)];
      if (member.stream >= 0) continue;
      text += fmt::format(" {}", member.rank);
      ++named;
    }
  } else {
    text += fmt::format(" waits for op {} of stream {}", stream.wait_target, static_cast<int>(stream.wait_stream));
  }
  return text;
}

void Engine::report_deadlock() const {
  std::string text = "the schedule does not end: ranks wait for each other";
  int lines = 0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].runs) continue;
    for (int id = 0; id < stream_count_; ++id) {
      const StreamState state = stream_of(static_cast<std::int32_t>(rank), id).state;
      if (state != StreamState::kArrived && state != StreamState::kBlocked) continue;
      if (++lines <= 20) text += "; " + waiting_text(static_cast<std::int32_t>(rank), id);
    }
  }
  if (lines > 20) text += fmt::format("; and {} more", lines - 20);
  throw LimitError(text);
}

}  // namespace longhaul
