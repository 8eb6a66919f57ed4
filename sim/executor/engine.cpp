// Ranks and their streams: issue, start and end of ops, idle time.
#include "sim/executor/engine.h"

#include <algorithm>
#include <bit>

#include "sim/core/invariant.h"

namespace longhaul {

Totals Engine::run() {
  const auto count = static_cast<std::int32_t>(ranks_.size());
  for (std::int32_t rank = 0; rank < count; ++rank) {
    if (!ranks_[static_cast<std::size_t>(rank)].runs) continue;
    issue_passes(rank, Time::zero());
    run_rank(rank, Time::zero());
  }
  arm_network();
  while (!queue_.empty()) {
    const Event event = queue_.pop();
    ++totals_.events;
    const auto index = static_cast<std::int32_t>(event.payload & 0xffffffffU);
    switch (static_cast<EventKind>(event.payload >> 32)) {
      case EventKind::kRank:
        // Any other entry than the earliest is stale: the stream it was for ends later by now, or has been dealt with.
        if (ranks_[static_cast<std::size_t>(index)].armed == event.time) run_rank(index, event.time);
        break;
      case EventKind::kMeeting:
        start_meeting(index, event.time);
        break;
      case EventKind::kNetwork:
        run_network(event.time);
        break;
      case EventKind::kSlowdowns:
        slow_transfers(event.time);
        break;
    }
  }
  return finish_totals();
}

// Runs what is due, and goes on alone as long as nobody else can touch this rank.
void Engine::run_rank(std::int32_t rank, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  if (state.armed <= now) state.armed = Time::max();
  while (true) {
    run_due(rank, now);
    settle(rank, now);
    const Time next = next_time(rank);
    if (next != Time::max() && state.meetings > 0) break;
    state.armed = Time::max();  // an entry that is still queued is stale now
    if (next == Time::max()) return;
    now = next;
  }
  arm(rank);
}

void Engine::run_due(std::int32_t rank, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  LH_ASSERT(now >= state.now, "rank {}: time goes back from {} ps to {} ps", rank, state.now.ps(), now.ps());
  state.now = now;
  for (int id = 0; id < stream_count_; ++id) {
    Stream& stream = stream_of(rank, id);
    if (!is_timed(stream)) continue;
    LH_ASSERT(stream.end >= now.ps(), "rank {} stream {}: missed its time {} ps", rank, id, stream.end);
    if (stream.end != now.ps()) continue;
    if (stream.state == StreamState::kIssue) {
      start(rank, id, now);
    } else if (stream.state == StreamState::kHeld) {
      release_held(rank, now);
    } else {
      finish_kernel(rank, id, now);
    }
  }
}

// Lets every stream that something happened to go on, until nothing moves at this instant.
void Engine::settle(std::int32_t rank, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  while (state.work != 0) {
    const int stream = std::countr_zero(state.work);
    state.work &= state.work - 1;
    advance(rank, stream, now);
  }
  if (state.load_changed) set_rates(rank, now);
  account(rank, now);
}

Time Engine::next_time(std::int32_t rank) const {
  std::int64_t next = Time::max().ps();
  for (int id = 0; id < stream_count_; ++id) {
    const Stream& stream = stream_of(rank, id);
    if (is_timed(stream)) next = std::min(next, stream.end);
  }
  return Time::from_ps(next);
}

void Engine::arm(std::int32_t rank) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  const Time next = next_time(rank);
  if (next >= state.armed) return;
  state.armed = next;
  push(EventKind::kRank, rank, next);
}

// The host issues passes as far as the launch queue allows.
void Engine::issue_passes(std::int32_t rank, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  while (state.passes_retired != state.passes_issued && passes_[pass_slot(rank, state.passes_retired)].remaining == 0) {
    state.outstanding -= passes_[pass_slot(rank, state.passes_retired)].variant->op_count;
    ++state.passes_retired;
  }
  const RankInfo& info = schedule_->ranks[static_cast<std::size_t>(rank)];
  const std::vector<Block>& blocks = schedule_->programs[static_cast<std::size_t>(info.program)].blocks;
  while (static_cast<std::size_t>(state.block) < blocks.size()) {
    const Block& block = blocks[static_cast<std::size_t>(state.block)];
    if (state.iteration >= block.iterations) {
      ++state.block;
      state.iteration = 0;
      continue;
    }
    const Variant& variant =
        code_.variant(block.segment, state.iteration == 0, state.iteration + 1 == block.iterations);
    if (variant.op_count > 0) {
      const std::uint32_t in_flight = state.passes_issued - state.passes_retired;
      const bool full = in_flight >= pass_capacity_ ||
                        in_flight >= static_cast<std::uint32_t>(options_->launch_queue_passes) ||
                        state.outstanding + variant.op_count > options_->launch_queue_ops;
      if (in_flight > 0 && full) {
        state.host_blocked = true;
        return;
      }
      if (state.host_blocked) state.host = std::max(state.host, now);
      state.host_blocked = false;
      issue_pass(rank, block, variant);
    }
    ++state.iteration;
  }
}

void Engine::issue_pass(std::int32_t rank, const Block& block, const Variant& variant) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  const std::size_t slot = pass_slot(rank, state.passes_issued);
  Iteration& pass = passes_[slot];
  pass.code = &code_.segment(block.segment);
  pass.variant = &variant;
  pass.costs = &code_.costs(rank, block);
  pass.shape = block.chunk < 0 ? nullptr : &schedule_->shape(rank, block.chunk);
  pass.issue_begin = state.host;
  pass.delays.clear();
  pass.stalls.clear();
  pass.stalls_started = 0;
  for (const std::uint16_t index : pass.costs->stalls) {
    if (!std::binary_search(variant.skipped.begin(), variant.skipped.end(), index)) pass.stalls.push_back(index);
  }
  state.stalls += static_cast<std::int32_t>(pass.stalls.size());
  pass.remaining = variant.op_count;
  pass.chunk = block.chunk;
  pass.layer = static_cast<std::int16_t>(block.first_layer + state.iteration * block.layer_step);
  pass.segment = block.segment;
  state.host += Time::from_ps(pass.costs->issued(variant));
  state.outstanding += variant.op_count;

  const auto streams = static_cast<std::size_t>(stream_count_);
  std::uint32_t* issued = &issued_[static_cast<std::size_t>(rank) * streams];
  std::uint32_t* base = &bases_[slot * streams];
  Record* slots = slots_.data() + static_cast<std::size_t>(rank) * slot_stride_;
  for (std::size_t i = 0; i < variant.imports.size(); ++i) {
    imports_[slot * import_stride_ + i] = slots[variant.imports[i]];
  }
  for (const Variant::Export& record : variant.exports) {
    slots[record.slot] = {issued[record.stream] + record.done, record.stream};
  }
  for (std::size_t s = 0; s < streams; ++s) {
    base[s] = issued[s];
    issued[s] += variant.stream_begin[s + 1] - variant.stream_begin[s];
    const Stream& stream = stream_of(rank, static_cast<int>(s));
    if (stream.state == StreamState::kExhausted && issued[s] != base[s]) state.work |= 1U << s;
  }
  ++state.passes_issued;
}

// Moves a stream to its first op in an issued pass from `from` on. False if there is none: the stream is exhausted.
bool Engine::find_pass(std::int32_t rank, int id, std::uint32_t from) {
  const Rank& state = ranks_[static_cast<std::size_t>(rank)];
  Stream& stream = stream_of(rank, id);
  stream.position = 0;
  for (stream.pass = from; stream.pass != state.passes_issued; ++stream.pass) {
    if ((passes_[pass_slot(rank, stream.pass)].variant->stream_mask >> id) & 1U) return true;
  }
  stream.state = StreamState::kExhausted;
  return false;
}

// Starts the next op of a free stream if it can, and passes over empty ones.
void Engine::advance(std::int32_t rank, int id, Time now) {
  Stream& stream = stream_of(rank, id);
  if (stream.state != StreamState::kBlocked && stream.state != StreamState::kExhausted) return;
  if (stream.state == StreamState::kExhausted) {
    // Passes retired meanwhile held no op of this stream; their places may be taken.
    const std::uint32_t retired = ranks_[static_cast<std::size_t>(rank)].passes_retired;
    const auto behind = static_cast<std::int32_t>(stream.pass - retired) < 0;
    if (!find_pass(rank, id, behind ? retired : stream.pass)) return;
    stream.state = StreamState::kBlocked;
  }
  while (true) {
    Iteration& pass = passes_[pass_slot(rank, stream.pass)];
    const std::size_t index = op_index(stream, id, pass);
    if (!waits_met(rank, stream, *pass.variant, index)) {
      stream.state = StreamState::kBlocked;
      return;
    }
    const OpCost& cost = pass.costs->ops[index];
    if (!cost.empty) {
      const bool held = behind_stall(rank, stream.pass, index);
      const std::int64_t issue = held ? Time::max().ps() : issue_time(pass, index).ps();
      if (issue > now.ps()) {
        stream.state = StreamState::kIssue;
        stream.end = issue;
        return;
      }
      start(rank, id, now);
      return;
    }
    begin_memory(rank, pass, index, now);
    end_memory(rank, pass, index, now);
    retire_op(rank, id, pass, now);
    if (stream.state == StreamState::kExhausted) return;
  }
}

bool Engine::waits_met(std::int32_t rank, Stream& stream, const Variant& variant, std::size_t index) const {
  const std::uint32_t end = variant.wait_begin[index + 1];
  for (std::uint32_t i = variant.wait_begin[index]; i < end; ++i) {
    const CodeWait& wait = variant.waits[i];
    const std::size_t slot = pass_slot(rank, stream.pass);
    Record record;
    if (wait.imported) {
      record = imports_[slot * import_stride_ + wait.value];
    } else {
      const std::uint32_t base =
          bases_[slot * static_cast<std::size_t>(stream_count_) + static_cast<std::size_t>(wait.stream)];
      record = {base + wait.value, wait.stream};
    }
    if (stream_of(rank, record.stream).done >= record.done) continue;
    stream.wait_stream = record.stream;
    stream.wait_target = record.done;
    return false;
  }
  return true;
}

// When the host has issued the op.
Time Engine::issue_time(const Iteration& pass, std::size_t index) const {
  std::int64_t time = pass.issue_begin.ps() + pass.costs->issued(*pass.variant, index);
  for (const Iteration::Delay& delay : pass.delays) {
    if (index >= delay.first) time += delay.time;
  }
  return Time::from_ps(time);
}

// Whether the host has yet to wait for an op before this one: it cannot have issued it.
bool Engine::behind_stall(std::int32_t rank, std::uint32_t pass, std::size_t index) const {
  const Rank& state = ranks_[static_cast<std::size_t>(rank)];
  if (state.stalls == 0) return false;
  for (std::uint32_t number = state.passes_retired; number != pass + 1; ++number) {
    const Iteration& one = passes_[pass_slot(rank, number)];
    if (one.stalls_started == one.stalls.size()) continue;
    if (number != pass || one.stalls[one.stalls_started] < index) return true;
  }
  return false;
}

// The host has waited for the stream of the op that starts now, and works for its stall: all that it issues after the
// op comes later, in this pass and in those that are issued already.
void Engine::hold_host(std::int32_t rank, int id, std::size_t index, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  const std::uint32_t number = stream_of(rank, id).pass;
  Iteration& pass = passes_[pass_slot(rank, number)];
  const std::int64_t late = now.ps() + pass.costs->ops[index].stall - issue_time(pass, index).ps();
  ++pass.stalls_started;
  --state.stalls;
  for (int other = 0; other < stream_count_; ++other) {
    Stream& stream = stream_of(rank, other);
    if (other == id || stream.state != StreamState::kIssue) continue;
    stream.state = StreamState::kBlocked;  // it looks again when it is issued
    state.work |= 1U << other;
  }
  if (late <= 0) return;
  pass.delays.push_back({index + 1, late});
  for (std::uint32_t later = number + 1; later != state.passes_issued; ++later) {
    passes_[pass_slot(rank, later)].issue_begin += Time::from_ps(late);
  }
  state.host += Time::from_ps(late);
}

// The op at the head of the stream is issued and its waits are met.
void Engine::start(std::int32_t rank, int id, Time now) {
  Stream& stream = stream_of(rank, id);
  const Iteration& pass = pass_of(rank, stream);
  const std::size_t index = op_index(stream, id, pass);
  begin_memory(rank, pass, index, now);
  if (stream.arrival != now.ps()) stream.wait_stream = -1;  // what it last waited for is not why it starts now
  stream.arrival = now.ps();
  stream.start = now.ps();
  if (pass.code->ops[index].op->kind == OpKind::kCollective) {
    stream.updated = now.ps();
    stream.end = held_until(rank, id, now);
    if (stream.end > now.ps()) {
      stream.state = StreamState::kHeld;
      ++ranks_[static_cast<std::size_t>(rank)].held;
    } else {
      arrive(rank, id, now);
    }
    return;
  }
  const OpCost& cost = pass.costs->ops[index];
  if (cost.stall >= 0) hold_host(rank, id, index, now);
  stream.state = StreamState::kRunning;
  stream.updated = now.ps();
  stream.remaining = static_cast<double>(cost.value);
  stream.slowdown = 1;
  stream.end = now.ps() + cost.value;  // alone; settle() knows what runs beside it
  add_kernel(rank, cost, 1);
}

void Engine::finish_kernel(std::int32_t rank, int id, Time now) {
  Stream& stream = stream_of(rank, id);
  const Iteration& pass = pass_of(rank, stream);
  const std::size_t index = op_index(stream, id, pass);
  const OpCost& cost = pass.costs->ops[index];
  if (id == kComputeStream) {
    const Op& op = *pass.code->ops[index].op;
    const Time alone = Time::from_ps(cost.value);
    RankTotals& sums = totals(rank);
    sums.compute[static_cast<std::size_t>(op.pass)][static_cast<std::size_t>(op.kind)] += alone;
    const auto kind = static_cast<std::size_t>(cost.kernel);
    sums.kernel_kind[kind] += alone;
    sums.kernel_below[kind] += Time::from_ps(cost.below);
    sums.kernel_above[kind] += Time::from_ps(cost.above);
    sums.contention += Time::from_ps(now.ps() - stream.start) - alone;
  }
  add_kernel(rank, cost, -1);
  complete(rank, id, now);
  if (ranks_[static_cast<std::size_t>(rank)].held > 0) release_held(rank, now);
}

// The op at the head of the stream has ended.
void Engine::complete(std::int32_t rank, int id, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  Stream& stream = stream_of(rank, id);
  Iteration& pass = passes_[pass_slot(rank, stream.pass)];
  const std::size_t index = op_index(stream, id, pass);
  end_memory(rank, pass, index, now);
  if (state.traced) trace(rank, id, pass, index, now);
  ++totals(rank).ops;
  stream.state = StreamState::kBlocked;
  retire_op(rank, id, pass, now);
  if (stream.state != StreamState::kExhausted) state.work |= 1U << id;
}

// Counts an op as done, wakes the streams that wait for it and moves its stream on.
void Engine::retire_op(std::int32_t rank, int id, Iteration& pass, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  Stream& stream = stream_of(rank, id);
  ++totals_.ops;
  ++stream.done;
  for (int other = 0; other < stream_count_; ++other) {
    Stream& waiter = stream_of(rank, other);
    if (waiter.state == StreamState::kBlocked && waiter.wait_stream == id && waiter.wait_target == stream.done &&
        other != id) {
      waiter.arrival = now.ps();
      state.work |= 1U << other;
    }
  }
  ++stream.position;
  const auto s = static_cast<std::size_t>(id);
  const std::uint32_t count = pass.variant->stream_begin[s + 1] - pass.variant->stream_begin[s];
  if (stream.position == count) find_pass(rank, id, stream.pass + 1);
  if (--pass.remaining == 0) issue_passes(rank, now);
}

// Closes the idle time of the compute stream so far if its cause has changed.
void Engine::account(std::int32_t rank, Time now) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  const Cause cause = cause_of_idle(rank);
  if (cause == state.cause) return;
  RankTotals& sums = totals(rank);
  const Time idle = now - state.idle_since;
  switch (state.cause) {
    case Cause::kBusy:
      break;
    case Cause::kImbalance:
      sums.imbalance += idle;
      break;
    case Cause::kExposed:
      sums.exposed_communication += idle;
      break;
    case Cause::kBubble:
      sums.bubble += idle;
      break;
    case Cause::kLaunch:
      sums.launch += idle;
      break;
    case Cause::kDone:
      LH_ASSERT(false, "rank {} goes on after its end", rank);
      break;
  }
  state.cause = cause;
  state.idle_since = now;
  if (cause == Cause::kDone) sums.end = now;
}

Engine::Cause Engine::cause_of_idle(std::int32_t rank) const {
  int id = kComputeStream;
  if (stream_of(rank, id).state == StreamState::kExhausted) {
    const auto unfinished = [&](int s) { return stream_of(rank, s).state != StreamState::kExhausted; };
    while (id < stream_count_ && !unfinished(id)) ++id;
    if (id == stream_count_) return Cause::kDone;
  }
  for (int hop = 0; hop <= stream_count_; ++hop) {
    const Stream& stream = stream_of(rank, id);
    switch (stream.state) {
      case StreamState::kRunning:
        return id == kComputeStream ? Cause::kBusy : Cause::kExposed;
      case StreamState::kTransfer:
      case StreamState::kHeld:
        return Cause::kExposed;
      case StreamState::kIssue:
        return Cause::kLaunch;
      case StreamState::kBlocked:
        id = stream.wait_stream;
        break;
      case StreamState::kArrived: {
        const Iteration& pass = pass_of(rank, stream);
        const std::size_t index = op_index(stream, id, pass);
        const bool receives = pass.costs->ops[index].receive_parts != 0;
        return pass.code->ops[index].op->pipeline_edge && receives ? Cause::kBubble : Cause::kImbalance;
      }
      case StreamState::kExhausted:
        LH_ASSERT(false, "rank {}: stream {} has ended before an event that is waited for", rank, id);
    }
  }
  LH_ASSERT(false, "rank {}: its streams wait for each other", rank);
  return Cause::kDone;
}

}  // namespace longhaul
