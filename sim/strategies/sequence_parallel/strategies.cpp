// data-parallel, ulysses and basp: heads split over groups that hold whole sequences.
#include <fmt/format.h>

#include "sim/strategies/families.h"
#include "sim/strategies/sequence_parallel/plan.h"
#include "sim/strategies/sequence_parallel/plan_json.h"
#include "sim/strategies/step/copies_option.h"
#include "sim/strategies/step/head_parallel.h"
#include "sim/strategies/step/replicas.h"

namespace longhaul {
namespace {

using PlanResult = tl::expected<SpPlan, std::string>;
using Planner = std::function<PlanResult(std::span<const std::int64_t> sequence_tokens)>;

// The plans of every (chunk, replica) and what each was made from.
struct PlannedBatch {
  int chunks = 0;
  int replicas = 0;
  std::vector<std::vector<std::int32_t>> sequences;  // by chunk * replicas + replica
  std::vector<SpPlan> plans;
};

tl::expected<PlannedBatch, std::string> plan_batch(const StrategyRequest& request, int replicas,
                                                   const Planner& planner) {
  PlannedBatch planned;
  const std::int64_t per_micro_batch = request.training.micro_batch_sequences;
  planned.replicas = replicas;
  planned.chunks = micro_batch_count(*request.batch, replicas, per_micro_batch);
  for (int chunk = 0; chunk < planned.chunks; ++chunk) {
    for (int replica = 0; replica < replicas; ++replica) {
      planned.sequences.push_back(micro_batch(chunk, replica, replicas, per_micro_batch));
      std::vector<std::int64_t> tokens;
      for (const std::int32_t sequence : planned.sequences.back()) {
        tokens.push_back(request.batch->sequences[static_cast<std::size_t>(sequence)].tokens);
      }
      PlanResult plan = planner(tokens);
      if (!plan) return tl::unexpected(plan.error());
      planned.plans.push_back(std::move(*plan));
    }
  }
  return planned;
}

// Rows first .. first + tokens of a packed sequence as runs of its documents.
void append_runs(const Batch& batch, const Sequence& sequence, std::int64_t first, std::int64_t tokens,
                 std::vector<RowRun>& runs) {
  std::int64_t start = 0;
  for (const DocumentId document : sequence.documents) {
    const std::int64_t length = batch.documents[static_cast<std::size_t>(document)];
    const std::int64_t begin = std::max(first, start);
    const std::int64_t end = std::min(first + tokens, start + length);
    if (begin < end) runs.push_back({document, TokenView::kClean, begin - start, end - begin});
    start += length;
  }
}

// What all members of one group share: rows sequence by sequence, one causal piece a document.
HeadParallelShape group_shape(const Batch& batch, const std::vector<std::int32_t>& sequences, const SpPlan& plan,
                              const SpGroup& group) {
  HeadParallelShape shape;
  std::vector<RowRun> rows;
  std::vector<Piece> pieces;
  std::vector<std::vector<RowSpan>> members(static_cast<std::size_t>(plan.group_size));
  std::int64_t row = 0;
  const auto& first_member = plan.rows[static_cast<std::size_t>(group.first_rank)];
  for (std::size_t s = 0; s < group.sequences.size(); ++s) {
    const std::int32_t index = sequences[static_cast<std::size_t>(group.sequences[s])];
    const Sequence& sequence = batch.sequences[static_cast<std::size_t>(index)];
    const std::int64_t per_member = first_member[s].tokens + first_member[s].padding;
    for (std::size_t j = 0; j < members.size(); ++j) {
      members[j].push_back({row + static_cast<std::int64_t>(j) * per_member, per_member});
    }
    std::int64_t start = row;
    for (const DocumentId document : sequence.documents) {
      const std::int64_t length = batch.documents[static_cast<std::size_t>(document)];
      rows.push_back({document, TokenView::kClean, 0, length});
      Piece piece;
      piece.q_row = piece.k_row = start;
      piece.q_count = piece.k_count = length;
      piece.rule = MaskRule::kCausal;
      pieces.push_back(piece);
      start += length;
    }
    const std::int64_t padded = per_member * plan.group_size;
    rows.push_back({-1, TokenView::kClean, 0, padded - sequence.tokens});
    row += padded;
  }
  shape.group_rows = make_row_map(std::move(rows));
  shape.pieces = make_piece_list(std::move(pieces));
  for (std::vector<RowSpan>& spans : members) shape.member_rows.push_back(make_row_list(std::move(spans)));
  return shape;
}

RowMapPtr rank_rows(const Batch& batch, const std::vector<std::int32_t>& sequences,
                    const std::vector<SequenceRows>& held) {
  std::vector<RowRun> runs;
  for (const SequenceRows& rows : held) {
    const std::int32_t index = sequences[static_cast<std::size_t>(rows.sequence)];
    append_runs(batch, batch.sequences[static_cast<std::size_t>(index)], rows.first, rows.tokens, runs);
    runs.push_back({-1, TokenView::kClean, 0, rows.padding});
  }
  return make_row_map(std::move(runs));
}

// Members of one group on one node do the same thing at the same time: the first stands for them.
void fold_ranks(Schedule& schedule, int group_size, int gpus_per_node) {
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    const int group_begin = rank / group_size * group_size;
    const int node_begin = rank / gpus_per_node * gpus_per_node;
    schedule.ranks[static_cast<std::size_t>(rank)].representative = std::max(group_begin, node_begin);
  }
}

std::shared_ptr<const Schedule> build_schedule(const StrategyRequest& request, const PlannedBatch& planned) {
  const Batch& batch = *request.batch;
  const int group_size = static_cast<int>(planned.plans.front().group_size);
  const int replica_ranks = request.ranks / planned.replicas;
  ScheduleBuilder builder;
  builder.schedule.model = request.model;
  builder.schedule.batch = request.batch;
  HeadParallelScheme scheme(group_size, false, framework_copies(request));
  const StepBuilder step(builder, request.model, batch.objective, unstaged_options(request, planned.chunks), scheme);
  add_replica_ranks(builder, step, request.model, request.ranks, planned.chunks);

  for (int begin = 0; begin < request.ranks; begin += group_size) {
    std::vector<std::int32_t> members;
    for (int rank = begin; rank < begin + group_size; ++rank) members.push_back(rank);
    const GroupId group = builder.add_group(members);
    for (const std::int32_t rank : members) {
      builder.schedule.ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(scheme.role())] = group;
    }
  }
  for (int chunk = 0; chunk < planned.chunks; ++chunk) {
    for (int replica = 0; replica < planned.replicas; ++replica) {
      const std::size_t index = static_cast<std::size_t>(chunk * planned.replicas + replica);
      const SpPlan& plan = planned.plans[index];
      for (const SpGroup& group : plan.groups) {
        HeadParallelShape shared = group_shape(batch, planned.sequences[index], plan, group);
        scheme.prepare(shared, shared.group_rows->rows / group_size);
        for (std::int64_t local = group.first_rank; local < group.first_rank + group_size; ++local) {
          const RowMapPtr rows = rank_rows(batch, planned.sequences[index], plan.rows[static_cast<std::size_t>(local)]);
          ShapeSet shape = builder.empty_shape();
          step.set_rows(shape, rows);
          scheme.set_shape(shape, chunk, rows->rows, shared);
          const std::size_t rank = static_cast<std::size_t>(replica * replica_ranks + local);
          builder.schedule.ranks[rank].shapes[static_cast<std::size_t>(chunk)] = builder.add_shape(std::move(shape));
        }
      }
    }
  }
  fold_ranks(builder.schedule, group_size, request.gpus_per_node);
  return std::make_shared<const Schedule>(std::move(builder.schedule));
}

Json plans_json(const PlannedBatch& planned, const StrategyRequest& request) {
  const Batch& batch = *request.batch;
  Json json = Json::array();
  for (std::size_t i = 0; i < planned.plans.size(); ++i) {
    std::vector<std::int64_t> pairs;
    for (const std::int32_t sequence : planned.sequences[i]) {
      pairs.push_back(0);
      for (const DocumentId document : batch.sequences[static_cast<std::size_t>(sequence)].documents) {
        pairs.back() += document_pairs(batch.documents[static_cast<std::size_t>(document)], batch.objective);
      }
    }
    const std::size_t replica = i % static_cast<std::size_t>(planned.replicas);
    SpJsonInputs inputs;
    inputs.sequence_pairs = pairs;
    inputs.head_dim = request.model.head_dim;
    inputs.first_rank = static_cast<std::int64_t>(replica) * (request.ranks / planned.replicas);
    inputs.gpus_per_node = request.gpus_per_node;
    Json entry = Json::object();
    entry["micro_batch"] = i / static_cast<std::size_t>(planned.replicas);
    entry["replica"] = replica;
    entry["sequences"] = planned.sequences[i];
    entry["plan"] = plan_json(planned.plans[i], inputs);
    json.push_back(std::move(entry));
  }
  return json;
}

Planned plan_step(const StrategyRequest& request, int replicas, const Planner& planner) {
  auto planned = plan_batch(request, replicas, planner);
  if (!planned) return tl::unexpected(planned.error());
  PlannedStep step;
  step.schedule = build_schedule(request, *planned);
  step.plan = [planned = std::make_shared<const PlannedBatch>(std::move(*planned)), request] {
    return plans_json(*planned, request);
  };
  return step;
}

BaspBatchPolicy batch_policy(const Json& options) {
  const std::string name = options.value("indivisible_batch", "reject");
  if (name == "gcd") return BaspBatchPolicy::kGcd;
  return name == "pad" ? BaspBatchPolicy::kPad : BaspBatchPolicy::kReject;
}

}  // namespace

void add_sequence_parallel_strategies(std::vector<Strategy>& list) {
  Strategy data;
  data.name = "data-parallel";
  data.baseline = "data-parallel";
  data.family = StrategyFamily::kData;
  data.plan = [](const StrategyRequest& request) {
    return plan_step(request, request.ranks, [&](std::span<const std::int64_t> tokens) {
      return plan_ulysses(tokens, 1, request.model.q_heads, request.model.kv_heads);
    });
  };
  list.push_back(data);

  Strategy ulysses;
  ulysses.name = "ulysses";
  ulysses.baseline = "ulysses";
  ulysses.family = StrategyFamily::kSequence;
  ulysses.option_keys = {"copies"};
  ulysses.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    check_copies(reader);
  };
  ulysses.plan = [](const StrategyRequest& request) {
    return plan_step(request, request.degrees.dp, [&](std::span<const std::int64_t> tokens) {
      return plan_ulysses(tokens, request.degrees.sp, request.model.q_heads, request.model.kv_heads);
    });
  };
  list.push_back(ulysses);

  Strategy basp;
  basp.name = "basp";
  basp.baseline = "ulysses";
  basp.family = StrategyFamily::kSequence;
  basp.option_keys = {"indivisible_batch"};
  basp.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    reader.choice("indivisible_batch", {"reject", "gcd", "pad"});
  };
  basp.plan = [](const StrategyRequest& request) {
    const BaspBatchPolicy policy = batch_policy(request.options);
    return plan_step(request, request.degrees.dp, [&](std::span<const std::int64_t> tokens) {
      return plan_basp(tokens, request.degrees.sp, request.model.q_heads, request.model.kv_heads, policy);
    });
  };
  list.push_back(basp);
}

}  // namespace longhaul
