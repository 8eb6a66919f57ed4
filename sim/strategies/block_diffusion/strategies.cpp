// bd-offset-cp and csbp: block-diffusion training with context-parallel groups.
#include <algorithm>
#include <tuple>

#include "sim/strategies/block_diffusion/plan.h"
#include "sim/strategies/block_diffusion/plan_json.h"
#include "sim/strategies/families.h"
#include "sim/strategies/step/context_step.h"
#include "sim/strategies/step/gather.h"

namespace longhaul {
namespace {

using PlanResult = tl::expected<BdPlan, std::string>;
using Planner = std::function<PlanResult(std::span<const PlannedDocument>)>;

// Rows of one document and view at consecutive rows of a tensor: tokens first .. in one run, or runs of `run` tokens
// every `stride`.
struct PlacedRows {
  DocumentId document = 0;
  std::int64_t first = 0, count = 0, run = 0, stride = 0;
  std::int64_t row = 0;
};

// Shards in the order in which their rows stand: joined where they continue each other; then those of one document with
// equal length and equal offset in their block (token-offset CP cuts every block alike) go together.
std::vector<PlacedRows> place(const std::vector<Shard>& shards, std::int64_t block) {
  std::vector<Shard> sorted = shards;  // dual-end pairing lists blocks from both ends in turn
  std::sort(sorted.begin(), sorted.end(), [](const Shard& a, const Shard& b) {
    return std::pair(a.document, a.prefix) < std::pair(b.document, b.prefix);
  });
  // Parts of a block join only inside it, so that what is left of every block looks alike.
  std::vector<Shard> joined;
  for (const Shard& shard : sorted) {
    if (shard.is_padding()) continue;
    const bool at_border = shard.prefix % block == 0;
    const bool whole_before = !joined.empty() && joined.back().prefix % block == 0;
    if (at_border && !whole_before)
      joined.push_back(shard);
    else
      append_shard(joined, shard);
  }
  const auto key = [&](const Shard& shard) {
    const bool part_of_block = shard.tokens < block;
    return std::tuple(shard.document, part_of_block ? shard.prefix % block : 0, part_of_block ? shard.tokens : 0);
  };
  std::stable_sort(joined.begin(), joined.end(), [&](const Shard& a, const Shard& b) { return key(a) < key(b); });
  std::vector<PlacedRows> placed;
  std::int64_t row = 0;
  for (const Shard& shard : joined) {
    PlacedRows* last = placed.empty() ? nullptr : &placed.back();
    const bool extends = last != nullptr && last->document == shard.document && last->run == shard.tokens &&
                         shard.prefix % block + shard.tokens <= block && shard.tokens < block &&
                         shard.prefix == last->first + last->count / last->run * block;
    if (extends) {
      last->count += shard.tokens;
    } else {
      placed.push_back({shard.document, shard.prefix, shard.tokens, shard.tokens, block, row});
    }
    row += shard.tokens;
  }
  return placed;
}

std::vector<RowRun> runs_of(const std::vector<PlacedRows>& placed, TokenView view, std::int64_t rows) {
  std::vector<RowRun> runs;
  std::int64_t held = 0;
  for (const PlacedRows& part : placed) {
    RowRun run{part.document, view, part.first, part.count};
    if (part.count > part.run) {
      run.run = static_cast<std::int32_t>(part.run);
      run.stride = static_cast<std::int32_t>(part.stride);
    }
    runs.push_back(run);
    held += part.count;
  }
  runs.push_back({kPaddingDocument, view, 0, rows - held});
  return runs;
}

// Rows of one rank: noisy, then clean. Each view is padded to the plan's rows.
struct RankRows {
  RowMapPtr rows, noisy, clean;
  std::vector<PlacedRows> noisy_parts, clean_parts;  // by row of their view
};

RankRows rank_rows(const BdPlan& plan, const BdRank& rank) {
  RankRows rows;
  rows.noisy_parts = place(rank.noisy, plan.block_tokens);
  rows.clean_parts = place(rank.clean, plan.block_tokens);
  std::vector<RowRun> noisy = runs_of(rows.noisy_parts, TokenView::kNoisy, plan.noisy_rows_per_rank);
  std::vector<RowRun> clean = runs_of(rows.clean_parts, TokenView::kClean, plan.clean_rows_per_rank);
  rows.noisy = make_row_map(noisy);
  rows.clean = make_row_map(clean);
  noisy.insert(noisy.end(), clean.begin(), clean.end());
  rows.rows = make_row_map(std::move(noisy));
  return rows;
}

// Parts of all ranks, each at its row among the gathered ones.
std::vector<PlacedRows> gathered_parts(const std::vector<RankRows>& ranks, std::vector<PlacedRows> RankRows::*parts,
                                       std::int64_t rows_per_rank) {
  std::vector<PlacedRows> gathered;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (PlacedRows part : ranks[rank].*parts) {
      part.row += static_cast<std::int64_t>(rank) * rows_per_rank;
      gathered.push_back(part);
    }
  }
  return gathered;
}

// Pieces of every query part against every key part of its document under `rule`.
void append_pieces(const std::vector<PlacedRows>& queries, std::int64_t first_query_row,
                   const std::vector<PlacedRows>& keys, MaskRule rule, std::int64_t block, std::vector<Piece>& pieces) {
  const auto strided = [](const PlacedRows& part) { return part.count > part.run; };
  for (const PlacedRows& q : queries) {
    for (const PlacedRows& k : keys) {
      if (q.document != k.document) continue;
      Piece piece;
      piece.q_row = first_query_row + q.row;
      piece.q_count = q.count;
      piece.q_token = q.first;
      piece.k_row = k.row;
      piece.k_count = k.count;
      piece.k_token = k.first;
      if (strided(q)) {
        piece.q_run = static_cast<std::int32_t>(q.run);
        piece.q_stride = static_cast<std::int32_t>(q.stride);
      }
      if (strided(k)) {
        piece.k_run = static_cast<std::int32_t>(k.run);
        piece.k_stride = static_cast<std::int32_t>(k.stride);
      }
      piece.block = static_cast<std::int32_t>(block);
      piece.rule = rule;
      pieces.push_back(piece);
    }
  }
}

GatherShape gather_shape(const RowListPtr& send_rows, std::int64_t padded, const RowMapPtr& gathered) {
  GatherShape shape;
  shape.send_rows = send_rows;
  shape.padded_rows = padded;
  shape.gathered_rows = gathered;
  return shape;
}

// Row maps of all ranks' parts, one after the other.
RowMapPtr concatenated(const std::vector<RankRows>& ranks, RowMapPtr RankRows::*part) {
  std::vector<RowRun> runs;
  for (const RankRows& rank : ranks) {
    const std::vector<RowRun>& own = (rank.*part)->runs;
    runs.insert(runs.end(), own.begin(), own.end());
  }
  return make_row_map(std::move(runs));
}

// What all members of one micro-batch share.
struct GatheredBatch {
  std::vector<RankRows> ranks;
  RowMapPtr clean_rows, noisy_rows;
  std::vector<PlacedRows> clean_parts, noisy_parts;
};

GatheredBatch gathered_batch(const BdPlan& plan) {
  GatheredBatch batch;
  for (const BdRank& rank : plan.ranks) batch.ranks.push_back(rank_rows(plan, rank));
  batch.clean_rows = concatenated(batch.ranks, &RankRows::clean);
  batch.clean_parts = gathered_parts(batch.ranks, &RankRows::clean_parts, plan.clean_rows_per_rank);
  if (plan.gathers_noisy) {
    batch.noisy_rows = concatenated(batch.ranks, &RankRows::noisy);
    batch.noisy_parts = gathered_parts(batch.ranks, &RankRows::noisy_parts, plan.noisy_rows_per_rank);
  }
  return batch;
}

// Sets rows, gathers and pieces of one rank. Stage 0 is the block-diagonal noisy attention, stage 1 noisy and clean
// queries against the gathered clean keys (csbp.md 3.2, 3.5).
void set_rank_shape(ShapeSet& shape, const StepBuilder& step, const GatherScheme& scheme, const BdPlan& plan,
                    const GatheredBatch& batch, int member) {
  const RankRows& own = batch.ranks[static_cast<std::size_t>(member)];
  const std::int64_t block = plan.block_tokens;
  const std::int64_t noisy_rows = own.noisy->rows;
  const std::int64_t clean_rows = own.clean->rows;
  step.set_rows(shape, own.rows);
  int gather = 0;
  if (plan.gathers_noisy) {
    scheme.set_gather(shape, gather++, gather_shape(make_row_list({{0, noisy_rows}}), noisy_rows, batch.noisy_rows));
  }
  scheme.set_gather(shape, gather,
                    gather_shape(make_row_list({{noisy_rows, clean_rows}}), clean_rows, batch.clean_rows));
  std::vector<Piece> diagonal;
  const std::vector<PlacedRows>& noisy_keys = plan.gathers_noisy ? batch.noisy_parts : own.noisy_parts;
  append_pieces(own.noisy_parts, 0, noisy_keys, MaskRule::kBlockDiagonal, block, diagonal);
  std::vector<Piece> offset;
  append_pieces(own.noisy_parts, 0, batch.clean_parts, MaskRule::kBlockCausalStrict, block, offset);
  append_pieces(own.clean_parts, noisy_rows, batch.clean_parts, MaskRule::kBlockCausal, block, offset);
  scheme.set_pieces(shape, 0, make_piece_list(std::move(diagonal)));
  scheme.set_pieces(shape, 1, make_piece_list(std::move(offset)));
}

tl::expected<std::vector<BdPlan>, std::string> plan_batch(const StrategyRequest& request, const Planner& planner) {
  std::vector<BdPlan> plans;
  const std::int64_t per_micro_batch = request.training.micro_batch_sequences;
  const int chunks = micro_batch_count(*request.batch, request.degrees.dp, per_micro_batch);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int replica = 0; replica < request.degrees.dp; ++replica) {
      std::vector<PlannedDocument> documents;  // planned jointly: the mask never crosses a document
      for (const std::int32_t sequence : micro_batch(chunk, replica, request.degrees.dp, per_micro_batch)) {
        const auto of_sequence =
            sequence_documents(*request.batch, request.batch->sequences[static_cast<std::size_t>(sequence)]);
        documents.insert(documents.end(), of_sequence.begin(), of_sequence.end());
      }
      PlanResult plan = planner(documents);
      if (!plan) return tl::unexpected(plan.error());
      plans.push_back(std::move(*plan));
    }
  }
  return plans;
}

Planned plan_step(const StrategyRequest& request, const Planner& planner, bool gathers_noisy) {
  auto plans = plan_batch(request, planner);
  if (!plans) return tl::unexpected(plans.error());
  std::vector<GatherConfig> gathers;
  if (gathers_noisy) gathers.push_back({"noisy", true, false});
  gathers.push_back({"clean", true, false});
  const int clean_gather = gathers_noisy ? 1 : 0;
  StageConfig diagonal{"block_diagonal", !gathers_noisy, {}};
  if (gathers_noisy) diagonal.gathers = {0};
  GatherScheme scheme(std::move(gathers), {diagonal, {"offset_causal", false, {clean_gather}}});

  GatheredBatch gathered;
  int made = -1;
  const auto set_shape = [&](ShapeSet& shape, const StepBuilder& step, int micro, int member) {
    const BdPlan& plan = (*plans)[static_cast<std::size_t>(micro)];
    if (made != micro) gathered = gathered_batch(plan);
    made = micro;
    set_rank_shape(shape, step, scheme, plan, gathered, member);
  };
  PlannedStep planned;
  planned.schedule = context_schedule(
      request, scheme, [&] { return scheme.role(); }, set_shape);
  planned.plan = [plans = std::make_shared<const std::vector<BdPlan>>(std::move(*plans)), request] {
    Json json = Json::array();
    for (std::size_t i = 0; i < plans->size(); ++i) {
      Json entry = Json::object();
      entry["micro_batch"] = i / static_cast<std::size_t>(request.degrees.dp);
      entry["replica"] = i % static_cast<std::size_t>(request.degrees.dp);
      entry["plan"] = plan_json((*plans)[i], request.model.kv_width(), 2);
      json.push_back(std::move(entry));
    }
    return json;
  };
  return planned;
}

Strategy block_diffusion_strategy(std::string name) {
  Strategy strategy;
  strategy.name = std::move(name);
  strategy.baseline = "bd-offset-cp";
  strategy.family = StrategyFamily::kContext;
  strategy.objective = ObjectiveKind::kBlockDiffusion;
  return strategy;
}

}  // namespace

void add_block_diffusion_strategies(std::vector<Strategy>& list) {
  Strategy offset = block_diffusion_strategy("bd-offset-cp");
  offset.plan = [](const StrategyRequest& request) {
    return plan_step(
        request,
        [&](std::span<const PlannedDocument> documents) {
          return plan_bd_offset_cp(documents, request.degrees.cp, request.batch->objective.block_tokens);
        },
        true);
  };
  list.push_back(offset);

  Strategy csbp = block_diffusion_strategy("csbp");
  csbp.plan = [](const StrategyRequest& request) {
    return plan_step(
        request,
        [&](std::span<const PlannedDocument> documents) {
          return plan_csbp(documents, request.degrees.cp, request.batch->objective.block_tokens);
        },
        false);
  };
  list.push_back(csbp);
}

}  // namespace longhaul
