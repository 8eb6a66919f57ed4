#include "validate/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "sim/schedule/agreement.h"
#include "validate/cpu/ops.h"

namespace longhaul {
namespace {

constexpr std::int32_t kNone = -1;

// One op of one rank with what it waits for.
struct Node {
  OpInstance at;
  std::vector<std::int32_t> followers;  // nodes of the same rank that wait for this one
  std::int32_t pending = 0;             // nodes that this one waits for
  std::int32_t call = kNone;            // index of its collective
  bool empty = false;
  bool done = false;
};

// The k-th calls of the members of a group.
struct Call {
  GroupId group = 0;
  std::vector<std::int32_t> nodes;  // by member; kNone: its program holds no such call
  std::size_t ready = 0;            // members whose call may run
  std::size_t launching = 0;        // members whose call is not empty
};

// Order in which ops that may run are taken: least first. (preference, index in program, rank).
using Ticket = std::tuple<std::uint64_t, std::int32_t, std::int32_t>;

class Execution {
 public:
  Execution(const Schedule& schedule, const ExecutionOptions& options)
      : schedule_(schedule), options_(options), machine_(schedule), nodes_(schedule.ranks.size()) {
    calls_of_.resize(schedule.groups.size());
    issued_.resize(schedule.groups.size());
  }

  ExecutionResult run() {
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      add_resident_tensors(machine_, static_cast<int>(rank), options_.parameter_seed);
      unroll(static_cast<std::int32_t>(rank));
    }
    match_calls();
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      for (std::size_t i = 0; i < nodes_[rank].size(); ++i) {
        if (nodes_[rank][i].pending == 0) arrive(static_cast<std::int32_t>(rank), static_cast<std::int32_t>(i));
      }
    }
    while (!runnable_.empty()) {
      const Ticket ticket = *runnable_.begin();
      runnable_.erase(runnable_.begin());
      launch(std::get<2>(ticket), std::get<1>(ticket));
    }
    if (done_ != total_) throw_deadlock();
    finish();
    return result_;
  }

 private:
  Node& node(std::int32_t rank, std::int32_t index) {
    return nodes_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(index)];
  }

  // Lists the ops of a rank and what each waits for: its stream, its events, the last call on its communicator.
  void unroll(std::int32_t rank) {
    std::vector<Node>& nodes = nodes_[static_cast<std::size_t>(rank)];
    std::vector<std::int32_t> stream_tail(static_cast<std::size_t>(schedule_.streams()), kNone);
    std::vector<std::int32_t> role_tail(schedule_.roles.size(), kNone);
    std::vector<std::int32_t> recorded(128, kNone);  // by event slot
    Cursor cursor(rank);
    OpInstance at;
    while (cursor.next(schedule_, at)) {
      const auto index = static_cast<std::int32_t>(nodes.size());
      Node next;
      next.at = at;
      next.empty = is_empty(schedule_, at) && at.op->function != Function::kGiven;
      std::vector<std::int32_t> before;
      const auto stream = static_cast<std::size_t>(at.op->stream);
      if (at.op->stream < 0 || stream >= stream_tail.size()) {
        throw ScheduleError(fmt::format("{}: no stream {}", place(at), at.op->stream));
      }
      before.push_back(std::exchange(stream_tail[stream], index));
      for (const EventSlot slot : at.op->waits) before.push_back(recorded[static_cast<std::size_t>(slot)]);
      if (at.op->kind == OpKind::kCollective) {
        before.push_back(std::exchange(role_tail[static_cast<std::size_t>(at.op->role)], index));
        next.call = join_call(at, index);
      }
      if (at.op->record != kNoEvent) recorded[static_cast<std::size_t>(at.op->record)] = index;
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      for (const std::int32_t earlier : before) {
        if (earlier == kNone) continue;
        nodes[static_cast<std::size_t>(earlier)].followers.push_back(index);
        ++next.pending;
      }
      nodes.push_back(std::move(next));
      ++total_;
    }
  }

  // Enters a call into the next sequence number of its group; returns the collective's index.
  std::int32_t join_call(const OpInstance& at, std::int32_t index) {
    const GroupId group =
        schedule_.ranks[static_cast<std::size_t>(at.rank)].groups[static_cast<std::size_t>(at.op->role)];
    if (group < 0) throw ScheduleError(fmt::format("{}: the rank has no group of that role", place(at)));
    const std::size_t members = schedule_.groups[static_cast<std::size_t>(group)].members.size();
    const auto member = static_cast<std::size_t>(schedule_.member_index(at.rank, at.op->role));
    std::vector<std::int32_t>& sequence = calls_of_[static_cast<std::size_t>(group)];
    std::vector<std::size_t>& issued = issued_[static_cast<std::size_t>(group)];
    issued.resize(members, 0);
    const std::size_t number = issued[member]++;
    if (number == sequence.size()) {
      Call call;
      call.group = group;
      call.nodes.assign(members, kNone);
      calls_.push_back(std::move(call));
      sequence.push_back(static_cast<std::int32_t>(calls_.size()) - 1);
    }
    calls_[static_cast<std::size_t>(sequence[number])].nodes[member] = index;
    return sequence[number];
  }

  std::int32_t member_rank(const Call& call, std::size_t member) const {
    return schedule_.groups[static_cast<std::size_t>(call.group)].members[member];
  }

  // Members agree, or the schedule is refused before anything runs.
  void match_calls() {
    for (Call& call : calls_) {
      std::vector<OpInstance> instances = instances_of(call);
      for (std::size_t m = 0; m < call.nodes.size(); ++m) {
        if (call.nodes[m] != kNone && !node(member_rank(call, m), call.nodes[m]).empty) ++call.launching;
      }
      if (instances.size() != call.nodes.size())
        continue;  // a member is missing: the call waits, and shows as a deadlock
      const std::vector<std::string> differences = collective_differences(schedule_, instances);
      if (!differences.empty()) throw ScheduleError(differences.front());
      const bool ring = instances.front().op->collective != CollectiveKind::kExchange;
      if (ring && call.launching != 0 && call.launching != call.nodes.size()) {
        throw ScheduleError(fmt::format("{}: empty for some members of the group only", place(instances.front())));
      }
    }
  }

  std::vector<OpInstance> instances_of(const Call& call) {
    std::vector<OpInstance> instances;
    for (std::size_t m = 0; m < call.nodes.size(); ++m) {
      if (call.nodes[m] != kNone) instances.push_back(node(member_rank(call, m), call.nodes[m]).at);
    }
    return instances;
  }

  Ticket ticket(std::int32_t rank, std::int32_t index) {
    const Node& of = node(rank, index);
    const bool compute = of.at.op->stream == kComputeStream;
    switch (options_.order) {
      case ExecutionOrder::kProgram:
        return {0, index, rank};
      case ExecutionOrder::kComputeFirst:
        return {compute ? 0 : 1, index, rank};
      case ExecutionOrder::kCommunicationFirst:
        return {compute ? 1 : 0, index, rank};
      case ExecutionOrder::kRandom:
        break;
    }
    std::uint64_t key =
        options_.order_seed + (static_cast<std::uint64_t>(rank) << 32) + static_cast<std::uint64_t>(index);
    for (int round = 0; round < 2; ++round) {  // SplitMix64's finaliser
      key += 0x9e3779b97f4a7c15ULL;
      key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ULL;
      key = (key ^ (key >> 27)) * 0x94d049bb133111ebULL;
      key ^= key >> 31;
    }
    return {key, index, rank};
  }

  // All that a node waits for on its own rank is done.
  void arrive(std::int32_t rank, std::int32_t index) {
    const Node& of = node(rank, index);
    if (of.call == kNone || of.empty) {
      runnable_.insert(ticket(rank, index));
      return;
    }
    Call& call = calls_[static_cast<std::size_t>(of.call)];
    ++call.ready;
    const bool complete = std::find(call.nodes.begin(), call.nodes.end(), kNone) == call.nodes.end();
    if (complete && call.ready == call.launching) runnable_.insert(ticket(rank, index));
  }

  void launch(std::int32_t rank, std::int32_t index) {
    const Node& first = node(rank, index);
    if (first.call == kNone || first.empty) {
      start(first);
      if (!first.empty) run_op(first.at);
      end(rank, index);
      return;
    }
    const Call& call = calls_[static_cast<std::size_t>(first.call)];
    std::vector<std::pair<std::int32_t, std::int32_t>> launching;
    for (std::size_t m = 0; m < call.nodes.size(); ++m) {
      const std::int32_t member = member_rank(call, m);
      if (!node(member, call.nodes[m]).empty) launching.emplace_back(member, call.nodes[m]);
    }
    for (const auto& [member, i] : launching) start(node(member, i));
    run_collective(machine_, instances_of(call));
    ++result_.collectives;
    result_.ops += static_cast<std::int64_t>(launching.size());
    for (const auto& [member, i] : launching) end(member, i);
  }

  void run_op(const OpInstance& at) {
    ++result_.ops;
    switch (at.op->kind) {
      case OpKind::kGemm:
        return run_gemm(machine_, at);
      case OpKind::kAttention:
        return run_attention(machine_, at);
      case OpKind::kMergePartials:
        return run_merge_partials(machine_, at);
      case OpKind::kElementwise:
        return run_elementwise(machine_, at);
      case OpKind::kMove:
        return run_move(machine_, at);
      case OpKind::kOptimizer:
        return run_optimizer(machine_, at);
      case OpKind::kCollective:
        break;
    }
  }

  void start(const Node& of) {
    std::vector<TensorId> tensors;
    for (const TensorRef& ref : of.at.op->acquire) resolve_all(of.at, ref, tensors);
    for (const TensorId& id : tensors) {
      if (!machine_.ranks[static_cast<std::size_t>(of.at.rank)].add(machine_.make_tensor(of.at.rank, id))) {
        machine_.fail(of.at, fmt::format("acquires {}, which is held already", tensor_name(schedule_, id)));
      }
    }
  }

  void end(std::int32_t rank, std::int32_t index) {
    Node& of = node(rank, index);
    std::vector<TensorId> tensors;
    for (const TensorRef& ref : of.at.op->release) resolve_all(of.at, ref, tensors);
    RankStorage& storage = machine_.ranks[static_cast<std::size_t>(rank)];
    for (const TensorId& id : tensors) {
      const TensorData* tensor = storage.find(id);
      if (tensor == nullptr) {
        machine_.fail(of.at, fmt::format("releases {}, which is not held", tensor_name(schedule_, id)));
      }
      if (options_.on_release) options_.on_release(rank, *tensor, &of.at);
      storage.remove(id);
    }
    of.done = true;
    ++done_;
    for (const std::int32_t follower : of.followers) {
      if (--node(rank, follower).pending == 0) arrive(rank, follower);
    }
  }

  // What is left is exactly what was there at the start.
  void finish() {
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      OpInstance outside;
      outside.rank = static_cast<std::int32_t>(rank);
      outside.chunk = kNoChunk;
      std::set<std::uint64_t> resident;
      const ProgramId program = schedule_.ranks[rank].program;
      for (const TensorRef& ref : schedule_.programs[static_cast<std::size_t>(program)].resident) {
        const TensorId id = resolve(outside, ref);
        resident.insert(id.key());
        const TensorData* tensor = machine_.ranks[rank].find(id);
        if (tensor == nullptr) {
          throw ScheduleError(fmt::format("rank {}: resident {} was released", rank, tensor_name(schedule_, id)));
        }
        if (options_.on_release) options_.on_release(static_cast<int>(rank), *tensor, nullptr);
      }
      for (const auto& [key, tensor] : machine_.ranks[rank].all()) {
        if (!resident.contains(key)) {
          throw ScheduleError(fmt::format("rank {}: {} is never released", rank, tensor_name(schedule_, tensor.id)));
        }
      }
      result_.loss += machine_.loss[rank];
    }
  }

  // What keeps the first unfinished op of a stream.
  std::string waits_for(std::int32_t rank, std::int32_t index) {
    const Node& of = node(rank, index);
    if (of.pending == 0 && of.call != kNone) {
      const Call& call = calls_[static_cast<std::size_t>(of.call)];
      const std::vector<std::int32_t>& sequence = calls_of_[static_cast<std::size_t>(call.group)];
      const auto number = std::find(sequence.begin(), sequence.end(), of.call) - sequence.begin();
      std::string missing;
      for (std::size_t m = 0; m < call.nodes.size(); ++m) {
        const std::int32_t member = member_rank(call, m);
        const std::int32_t i = call.nodes[m];
        if (i != kNone && (node(member, i).pending == 0 || node(member, i).empty)) continue;
        missing +=
            fmt::format("{}rank {}{}", missing.empty() ? "" : ", ", member, i == kNone ? " (has no such call)" : "");
      }
      return fmt::format("call {} of group {} (role {}): missing {}", number, call.group,
                         schedule_.roles[static_cast<std::size_t>(of.at.op->role)], missing);
    }
    std::string blockers;
    for (const Node& earlier : nodes_[static_cast<std::size_t>(rank)]) {
      if (earlier.done ||
          std::find(earlier.followers.begin(), earlier.followers.end(), index) == earlier.followers.end()) {
        continue;
      }
      blockers += fmt::format("{}`{}` (layer {}, chunk {})", blockers.empty() ? "" : ", ", earlier.at.op->label,
                              earlier.at.layer, earlier.at.chunk);
    }
    return blockers;
  }

  [[noreturn]] void throw_deadlock() {
    std::vector<std::string> waiting;
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      std::vector<bool> listed(static_cast<std::size_t>(schedule_.streams()), false);
      for (std::size_t i = 0; i < nodes_[rank].size(); ++i) {
        const Node& of = nodes_[rank][i];
        const auto stream = static_cast<std::size_t>(of.at.op->stream);
        if (of.done || listed[stream]) continue;
        listed[stream] = true;
        waiting.push_back(fmt::format("{} on stream {} waits for {}", place(of.at), of.at.op->stream,
                                      waits_for(static_cast<std::int32_t>(rank), static_cast<std::int32_t>(i))));
      }
    }
    throw DeadlockError(fmt::format("deadlock after {} of {} ops:\n{}", done_, total_, fmt::join(waiting, "\n")),
                        waiting);
  }

  const Schedule& schedule_;
  const ExecutionOptions& options_;
  Machine machine_;
  std::vector<std::vector<Node>> nodes_;  // by rank, in program order
  std::vector<Call> calls_;
  std::vector<std::vector<std::int32_t>> calls_of_;  // by group: indices into calls_, by sequence number
  std::vector<std::vector<std::size_t>> issued_;     // by group, member: calls so far
  std::set<Ticket> runnable_;
  std::int64_t done_ = 0, total_ = 0;
  ExecutionResult result_;
};

}  // namespace

ExecutionResult execute(const Schedule& schedule, const ExecutionOptions& options) {
  return Execution(schedule, options).run();
}

}  // namespace longhaul
