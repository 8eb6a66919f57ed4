#include "validate/report/prediction.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <set>
#include <tuple>

#include "sim/analysis/summary.h"
#include "sim/core/invariant.h"
#include "sim/executor/simulate.h"
#include "sim/network/comm_group.h"
#include "sim/network/nccl/memory.h"
#include "sim/schedule/op_kind_name.h"
#include "validate/device/arena_plan.h"
#include "validate/report/rank_alone.h"

namespace longhaul {
namespace {

using OpKey = std::tuple<std::int32_t, SegmentId, std::int16_t, std::int32_t, std::int16_t>;

// Records by op; an op that a program holds twice has them in the order in which it ran.
using RecordsByOp = std::map<OpKey, std::vector<const OpRecord*>>;

RecordsByOp records_by_op(const RecordedTimeline& timeline) {
  RecordsByOp records;
  for (const OpRecord& op : timeline.ops) {
    records[{op.rank, op.segment, op.index, op.chunk, op.layer}].push_back(&op);
  }
  return records;
}

int floor_log2(double value) {
  return value < 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value))) - 1;
}

std::int64_t moved_bytes(const Schedule& schedule, const OpInstance& at) {
  if (at.op->kind != OpKind::kCollective) return touched_bytes(schedule, at);
  if (at.op->collective != CollectiveKind::kExchange) return collective_buffer_bytes(schedule, at);
  std::int64_t bytes = 0;
  for (const PeerBytes& peer : exchange_bytes(schedule, at)) bytes += peer.send;
  return bytes;
}

void describe_shape(const Schedule& schedule, const OpInstance& at, PredictedOp& op) {
  const Op& of = *at.op;
  if (of.kind == OpKind::kGemm) {
    const GemmShape shape = gemm_shape(schedule, at);
    op.shape = fmt::format("{} x {} x {}", shape.m, shape.n, shape.k);
    const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n * shape.k);
    op.shape_class = fmt::format("gemm of 2^{} FLOP", floor_log2(flops));
    return;
  }
  if (of.kind == OpKind::kAttention) {
    const PieceListPtr& list = at.shape->pieces[static_cast<std::size_t>(of.pieces)];
    double pairs = 0;
    for (const Piece& piece : list->pieces) pairs += static_cast<double>(piece.pairs);
    op.shape = fmt::format("{} piece{}, {:.3g} pairs, {}/{} heads of {}", list->pieces.size(),
                           list->pieces.size() == 1 ? "" : "s", pairs, of.q_heads, of.kv_heads, of.head_dim);
    op.shape_class = fmt::format("attention of 2^{} pairs", floor_log2(pairs));
    return;
  }
  const std::int64_t bytes = moved_bytes(schedule, at);
  op.shape = fmt::format("{} B", bytes);
  op.shape_class = fmt::format("{} of 2^{} B", op_kind_name(of.kind), floor_log2(static_cast<double>(bytes)));
}

// Everything but the place in the timeline.
PredictedOp predict_op(const Schedule& schedule, const KernelDurations& durations, const OpInstance& at,
                       std::int32_t position) {
  PredictedOp op;
  op.rank = at.rank;
  op.position = position;
  op.stream = at.op->stream;
  op.kind = at.op->kind;
  op.pass = at.op->pass;
  op.segment = at.segment;
  op.index = at.index;
  op.layer = at.layer;
  op.chunk = at.chunk;
  op.label = at.op->label;
  describe_shape(schedule, at, op);
  if (op.kind == OpKind::kCollective) {
    op.group = schedule.ranks[static_cast<std::size_t>(at.rank)].groups[static_cast<std::size_t>(at.op->role)];
    return op;
  }
  const OpDuration duration = durations.duration(schedule, at);
  const Estimate estimate = durations.estimate(schedule, at);
  op.kernel = duration.kernel;
  op.time = duration.time;
  op.low = Time::from_seconds(estimate.low);
  op.high = Time::from_seconds(estimate.high);
  op.basis = estimate.basis;
  return op;
}

void place(PredictedOp& op, const OpRecord& record) {
  op.start = record.start;
  op.end = record.end;
  if (op.kind == OpKind::kCollective) op.time = record.end - record.called;
}

// The k-th calls of a group's members belong together; what the members that came first waited is not the call's.
void take_least_of_members(std::vector<PredictedOp>& ops) {
  std::map<std::pair<GroupId, std::int32_t>, int> count;  // by group and rank
  std::map<std::pair<GroupId, int>, std::vector<PredictedOp*>> calls;
  for (PredictedOp& op : ops) {
    if (op.kind == OpKind::kCollective) calls[{op.group, count[{op.group, op.rank}]++}].push_back(&op);
  }
  for (const auto& [call, members] : calls) {
    const auto* last = *std::min_element(members.begin(), members.end(),
                                         [](const PredictedOp* a, const PredictedOp* b) { return a->time < b->time; });
    const Time time = last->time;
    for (PredictedOp* op : members) op->time = op->low = op->high = time;
  }
}

// What a rank's ops use of its communicators, one a group that it is in (executors make one of a group of one, too).
class CommunicatorUse {
 public:
  void add(const Schedule& schedule, const OpInstance& at) {
    if (at.op->kind != OpKind::kCollective) return;
    Use& use = uses_[schedule.ranks[static_cast<std::size_t>(at.rank)].groups[static_cast<std::size_t>(at.op->role)]];
    if (at.op->collective != CollectiveKind::kExchange) {
      use.rings = true;
      return;
    }
    for (const PeerBytes& peer : exchange_bytes(schedule, at)) {
      if (peer.send > 0) use.sends.insert(peer.peer);
      if (peer.receive > 0) use.receives.insert(peer.peer);
    }
  }
  std::int64_t bytes(const Schedule& schedule, const Cluster& cluster, std::int32_t rank) const {
    if (schedule.ranks.size() == 1) return 0;  // runs without NCCL
    const NcclMachine machine = nccl_machine(cluster.topology());
    const std::vector<GroupId>& roles = schedule.ranks[static_cast<std::size_t>(rank)].groups;
    std::int64_t sum = 0;
    for (const GroupId group : std::set<GroupId>(roles.begin(), roles.end())) {
      if (group < 0) continue;
      const CommGroup ranks = make_comm_group(cluster, schedule.groups[static_cast<std::size_t>(group)].members);
      NcclConnections of{ranks.ranks, static_cast<int>(ranks.domains.size()), ranks.largest};
      if (const auto use = uses_.find(group); use != uses_.end()) {
        of.rings = use->second.rings;
        of.send_peers = static_cast<int>(use->second.sends.size());
        of.receive_peers = static_cast<int>(use->second.receives.size());
      }
      sum += nccl_memory(machine, of).value;
    }
    return sum;
  }

 private:
  struct Use {
    bool rings = false;
    std::set<std::int32_t> sends, receives;
  };
  std::map<GroupId, Use> uses_;
};

}  // namespace

std::vector<std::string> stream_names(const Schedule& schedule) {
  std::vector<std::string> names = {"compute", "copy-in", "copy-out"};
  names.insert(names.end(), schedule.roles.begin(), schedule.roles.end());
  return names;
}

Prediction predict_run(const CaseSetup& setup, const PlannedStep& planned) {
  Prediction prediction;
  prediction.schedule = planned.schedule;
  prediction.streams = stream_names(*planned.schedule);
  prediction.memory_limit_bytes = setup.memory_limit();
  const Schedule& schedule = *planned.schedule;
  const KernelDurations durations(setup.kernels);
  const Programs programs = unroll(schedule);
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(schedule.ranks.size()); ++rank) {
    Cursor cursor(rank);
    CommunicatorUse communicators;
    OpInstance at;
    for (std::int32_t position = 0; cursor.next(schedule, at); ++position) {
      if (is_empty(schedule, at)) continue;
      if (prediction.ops.size() >= static_cast<std::size_t>(kMostPredictedOps)) {
        throw LimitError(
            fmt::format("a step of more than {} ops is not compared op by op; use --reduced", kMostPredictedOps));
      }
      prediction.ops.push_back(predict_op(schedule, durations, at, position));
      communicators.add(schedule, at);
    }
    prediction.communicator_bytes.push_back(communicators.bytes(schedule, setup.cluster, rank));
    prediction.block_bytes.push_back(plan_arena(schedule, programs, rank).bytes);
    prediction.rank_alone.push_back(
        rank_alone(schedule, rank, durations.launch(),
                   [&](const OpInstance& op, std::int32_t) { return durations.duration(schedule, op).time; }));
  }
  SimulationOptions options;
  options.unfolded = true;
  options.sink = &prediction.timeline;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    options.trace.ranks.push_back(static_cast<std::int32_t>(rank));
  }
  prediction.totals = simulate(schedule, setup.cluster, setup.kernels, options);
  const StepSummary summary =
      summarize(prediction.totals, schedule, setup.study_case->training, setup.cluster, setup.kernels);
  prediction.step_low = summary.low;
  prediction.step_high = summary.high;
  prediction.collective_half_width = collective_half_width(prediction.totals, setup.cluster, shipped_nccl_residuals());

  const RecordsByOp records = records_by_op(prediction.timeline);
  std::map<OpKey, std::size_t> used;
  for (PredictedOp& op : prediction.ops) {
    const OpKey key{op.rank, op.segment, op.index, op.chunk, op.layer};
    const auto found = records.find(key);
    const std::size_t nth = used[key]++;
    LH_ASSERT(found != records.end() && nth < found->second.size(), "rank {}: op {} `{}` left no record", op.rank,
              op.position, op.label);
    place(op, *found->second[nth]);
  }
  take_least_of_members(prediction.ops);
  return prediction;
}

}  // namespace longhaul
