#include "sim/strategies/context_parallel/document_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/ring_shapes.h"
#include "sim/strategies/step/replicas.h"

namespace longhaul {
namespace {

// A document in its group.
struct GroupCall {
  std::int64_t first = 0;  // rank
  CpPlan plan;             // by member

  std::int64_t ranks() const { return plan.rank_count(); }
};

// The d-th documents of a round.
struct DocumentCall {
  std::vector<GroupCall> groups;
  bool ends_round = false;

  // Null: the rank has none.
  const GroupCall* of(std::int64_t rank) const {
    for (const GroupCall& group : groups) {
      if (group.first <= rank && rank < group.first + group.ranks()) return &group;
    }
    return nullptr;
  }
};
using MicroBatchCalls = std::vector<DocumentCall>;

CpPlan document_plan(const PlannedDocument& document, std::int64_t ranks) {
  if (ranks > 1) return *plan_zigzag_cp({&document, 1}, ranks);
  CpPlan plan;
  plan.ranks = {{{document.document, 0, document.tokens, document.tokens}}};
  plan.padded_tokens_per_rank = document.tokens;
  return plan;
}

void append_round(MicroBatchCalls& calls, const DocumentRound& round) {
  std::size_t most = 0;
  for (const DocumentGroup& group : round) most = std::max(most, group.documents.size());
  for (std::size_t d = 0; d < most; ++d) {
    DocumentCall& call = calls.emplace_back();
    call.ends_round = d + 1 == most;
    for (const DocumentGroup& group : round) {
      if (d < group.documents.size()) {
        call.groups.push_back({group.first, document_plan(group.documents[d], group.ranks)});
      }
    }
  }
}

// By micro-batch, as plan_batch; the same refusals.
tl::expected<std::vector<MicroBatchCalls>, std::string> plan_calls(const StrategyRequest& request,
                                                                   std::int64_t rank_tokens) {
  const Batch& batch = *request.batch;
  const std::int64_t each = request.training.micro_batch_sequences;
  const int ranks = request.degrees.cp, replicas = request.degrees.dp;
  std::vector<MicroBatchCalls> micro_batches;
  for (int i = 0; i < micro_batch_count(batch, replicas, each) * replicas; ++i) {
    micro_batches.emplace_back();
    for (const std::int32_t sequence : micro_batch(i / replicas, i % replicas, replicas, each)) {
      const auto documents = sequence_documents(batch, batch.sequences[static_cast<std::size_t>(sequence)]);
      if (auto reason = sharing_refusal(documents, ranks)) return tl::unexpected(*reason);
      const auto rounds =
          plan_document_rounds(documents, ranks, rank_tokens > 0 ? rank_tokens : even_share(documents, ranks));
      if (!rounds) return tl::unexpected(rounds.error());
      for (const DocumentRound& round : *rounds) append_round(micro_batches.back(), round);
    }
  }
  return micro_batches;
}

// What each rank holds, document after document.
CpPlan plan_of(const MicroBatchCalls& calls, std::int64_t ranks) {
  CpPlan plan;
  plan.ranks.resize(static_cast<std::size_t>(ranks));
  for (const DocumentCall& call : calls) {
    for (const GroupCall& group : call.groups) {
      for (std::int64_t member = 0; member < group.ranks(); ++member) {
        std::vector<Shard>& shards = plan.ranks[static_cast<std::size_t>(group.first + member)];
        for (const Shard& shard : group.plan.ranks[static_cast<std::size_t>(member)]) append_shard(shards, shard);
      }
    }
  }
  for (std::vector<Shard>& shards : plan.ranks) {
    std::int64_t rows = 0;
    for (const Shard& shard : shards) rows += shard.tokens;
    plan.padded_tokens_per_rank = std::max(plan.padded_tokens_per_rank, rows);
  }
  return plan;
}

std::set<std::int64_t> group_sizes(const std::vector<MicroBatchCalls>& calls) {
  std::set<std::int64_t> sizes = {1};  // for ranks that have nothing in the last chunk
  for (const MicroBatchCalls& micro : calls) {
    for (const DocumentCall& call : micro) {
      for (const GroupCall& group : call.groups) sizes.insert(group.ranks());
    }
  }
  return sizes;
}

// Writes the schedule of planned calls.
class DocumentSchedule {
 public:
  // `sizes`: group_sizes.
  DocumentSchedule(const StrategyRequest& request, const std::vector<MicroBatchCalls>& calls,
                   const std::set<std::int64_t>& sizes, RingFlavor flavor)
      : request_(request), calls_(calls) {
    const auto replicas = static_cast<std::size_t>(request.degrees.dp);
    for (std::size_t micro = 0; micro < calls.size(); micro += replicas) {
      first_chunk_.push_back(chunks_);
      std::size_t most = 0;
      for (std::size_t r = 0; r < replicas; ++r) most = std::max(most, calls[micro + r].size());
      chunks_ += static_cast<int>(most);
    }
    for (const std::int64_t size : sizes) {
      rings_.push_back({size, RingScheme(static_cast<int>(size), flavor, false, fmt::format("ring of {}", size)), {}});
    }
  }

  std::shared_ptr<const Schedule> write() {
    builder_.schedule.model = request_.model;
    builder_.schedule.batch = request_.batch;
    StepOptions options = unstaged_options(request_, chunks_);
    options.gather_once = true;
    StepBuilder step(builder_, request_.model, request_.batch->objective, options, rings_.front().scheme);
    for (std::size_t i = 1; i < rings_.size(); ++i) step.add_scheme(rings_[i].scheme);
    barrier_ = barrier_segment();
    add_ranks(step);
    for (int chunk = 0; chunk < static_cast<int>(first_chunk_.size()); ++chunk) {
      for (int replica = 0; replica < request_.degrees.dp; ++replica) add_shapes(step, chunk, replica);
    }
    add_last_rows(step);
    return std::make_shared<const Schedule>(std::move(builder_.schedule));
  }

 private:
  struct Ring {
    std::int64_t ranks = 1;
    RingScheme scheme;
    std::map<std::int64_t, GroupId> groups;  // by first rank of the step
  };

  const MicroBatchCalls& calls_of(int chunk, int replica) const {
    return calls_[static_cast<std::size_t>(chunk * request_.degrees.dp + replica)];
  }
  std::size_t ring_of(const GroupCall& group) const {
    const auto at = std::find_if(rings_.begin(), rings_.end(), [&](const Ring& r) { return r.ranks == group.ranks(); });
    LH_ASSERT(at != rings_.end(), "no ring of {} ranks", group.ranks());
    return static_cast<std::size_t>(at - rings_.begin());
  }

  SegmentId barrier_segment() {
    barrier_role_ = builder_.role("round");
    SegmentWriter w(builder_, Pass::kForward);
    const TensorRef flag =
        step_tensor(builder_.flat("barrier_flag", 1, 1, ElementType::kFp32, MemoryCategory::kCommunication));
    const EventSlot begun = builder_.event(), done = builder_.event();
    w.elementwise("barrier_zero", Function::kZero, {builder_.whole(flag, Access::kWrite)})
        .acquires({flag})
        .records(begun);
    w.collective("barrier", CollectiveKind::kAllReduce, barrier_role_,
                 {{View{}, builder_.whole(flag, Access::kAccumulate), -1}})
        .waits(begun)
        .records(done);
    w.elementwise("barrier_over", Function::kGiven, {}).waits(done).releases({flag});
    return builder_.add_segment("barrier", w.take());
  }

  Program program_of(const StepBuilder& step, int replica, int member) const {
    const int layers = static_cast<int>(request_.model.layers);
    Program program;
    program.resident = step.resident(0, layers, true, true);
    step.append_prepare(program, 0, layers, true, true);
    for (int chunk = 0; chunk < static_cast<int>(first_chunk_.size()); ++chunk) {
      const MicroBatchCalls& calls = calls_of(chunk, replica);
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const int at = first_chunk_[static_cast<std::size_t>(chunk)] + static_cast<int>(i);
        const bool last = at + 1 == chunks_;
        const GroupCall* group = calls[i].of(member);
        if (group != nullptr) step.append_chunk(program, at, last, static_cast<int>(ring_of(*group)));
        if (group == nullptr && last) step.append_chunk(program, at, last);
        const bool over = i + 1 == calls.size() && chunk + 1 == static_cast<int>(first_chunk_.size());
        if (calls[i].ends_round && !over) program.blocks.push_back({barrier_, 0, 1, 1, kNoChunk});
      }
      // A replica with fewer documents than another one.
      const int end = first_chunk_[static_cast<std::size_t>(chunk)] + static_cast<int>(calls.size());
      if (chunk + 1 == static_cast<int>(first_chunk_.size()) && end < chunks_) {
        step.append_chunk(program, chunks_ - 1, true);
      }
    }
    step.append_drop(program, 0, layers);
    step.append_optimizer(program, 0, layers, true, true);
    return program;
  }

  void add_ranks(const StepBuilder& step) {
    const int cp = request_.degrees.cp;
    std::vector<std::int32_t> all(static_cast<std::size_t>(request_.ranks));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    const GroupId zero = builder_.add_group(all);
    builder_.schedule.ranks.resize(all.size());
    for (int replica = 0; replica < request_.degrees.dp; ++replica) {
      const auto first = all.begin() + replica * cp;
      const GroupId round = builder_.add_group({first, first + cp});
      for (int member = 0; member < cp; ++member) {
        const int rank = replica * cp + member;
        RankInfo& info = builder_.schedule.ranks[static_cast<std::size_t>(rank)];
        info.program = builder_.add_program(program_of(step, replica, member));
        info.groups.assign(builder_.schedule.roles.size(), -1);
        info.groups[static_cast<std::size_t>(step.zero_role())] = zero;
        info.groups[static_cast<std::size_t>(barrier_role_)] = round;
        info.shapes.assign(static_cast<std::size_t>(chunks_), -1);
        info.representative = rank;
      }
    }
  }

  void add_shapes(const StepBuilder& step, int chunk, int replica) {
    const MicroBatchCalls& calls = calls_of(chunk, replica);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      for (const GroupCall& group : calls[i].groups) {
        const std::int64_t first = replica * request_.degrees.cp + group.first;
        add_group_shapes(step, first_chunk_[static_cast<std::size_t>(chunk)] + static_cast<int>(i), first, group);
      }
    }
  }

  void add_group_shapes(const StepBuilder& step, int at, std::int64_t first, const GroupCall& group) {
    Ring& ring = rings_[ring_of(group)];
    if (ring.ranks > 1 && !ring.groups.contains(first)) {
      std::vector<std::int32_t> members;
      for (std::int64_t rank = first; rank < first + ring.ranks; ++rank) {
        members.push_back(static_cast<std::int32_t>(rank));
      }
      const GroupId id = ring.groups[first] = builder_.add_group(members);
      for (const std::int32_t rank : members) {
        builder_.schedule.ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(ring.scheme.role())] =
            id;
      }
    }
    const std::vector<std::vector<RingStepShape>> shapes = ring_shapes(group.plan);
    for (std::size_t member = 0; member < shapes.size(); ++member) {
      ShapeSet shape = builder_.empty_shape();
      step.set_rows(shape, shapes[member].front().block_rows);
      ring.scheme.set_shape(shape, static_cast<int>(member), shapes[member]);
      RankInfo& info = builder_.schedule.ranks[static_cast<std::size_t>(first) + member];
      info.shapes[static_cast<std::size_t>(at)] = builder_.add_shape(std::move(shape));
    }
  }

  // A row of padding for ranks without a document in the last chunk: they take part in the reductions of gradients.
  void add_last_rows(const StepBuilder& step) {
    CpPlan padding;
    padding.ranks = {{padding_shard(1)}};
    const std::vector<std::vector<RingStepShape>> shapes = ring_shapes(padding);
    for (RankInfo& info : builder_.schedule.ranks) {
      if (info.shapes.back() >= 0) continue;
      ShapeSet shape = builder_.empty_shape();
      step.set_rows(shape, shapes.front().front().block_rows);
      rings_.front().scheme.set_shape(shape, 0, shapes.front());
      info.shapes.back() = builder_.add_shape(std::move(shape));
    }
  }

  const StrategyRequest& request_;
  const std::vector<MicroBatchCalls>& calls_;
  std::vector<int> first_chunk_;  // of each micro-batch of a replica
  int chunks_ = 0;
  ScheduleBuilder builder_;
  std::vector<Ring> rings_;  // rising; scheme i of the step
  SegmentId barrier_ = -1;
  GroupRole barrier_role_ = -1;
};

}  // namespace

Planned plan_document_step(const StrategyRequest& request, std::int64_t rank_tokens, RingFlavor flavor) {
  const auto calls = plan_calls(request, rank_tokens);
  if (!calls) return tl::unexpected(calls.error());
  const std::set<std::int64_t> sizes = group_sizes(*calls);
  const std::int64_t steps = std::accumulate(sizes.upper_bound(1), sizes.end(), std::int64_t{0});
  if (steps > kMostRingSteps) {
    return tl::unexpected(fmt::format("rings of {} ranks in all are larger than {}", steps, kMostRingSteps));
  }
  PlannedStep planned;
  planned.schedule = DocumentSchedule(request, *calls, sizes, flavor).write();
  std::vector<CpPlan> plans;
  for (const MicroBatchCalls& micro : *calls) plans.push_back(plan_of(micro, request.degrees.cp));
  planned.plan = [kept = std::make_shared<const std::vector<CpPlan>>(std::move(plans)), request] {
    return plans_json(*kept, request, CpTraffic::kNeed);
  };
  return planned;
}

}  // namespace longhaul
