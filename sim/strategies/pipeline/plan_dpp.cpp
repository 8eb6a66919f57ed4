#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "sim/strategies/pipeline/dpp_candidate.h"
#include "sim/strategies/pipeline/planners.h"

namespace longhaul {
namespace {

// Longest modelled time first, each to the replica with the least time so far.
std::vector<ReplicaDocuments> deal_documents(const Batch& batch, const StageCost& cost, std::int32_t replicas) {
  std::vector<DocumentId> order(batch.documents.size());
  std::iota(order.begin(), order.end(), 0);
  const auto tokens_of = [&](DocumentId id) { return batch.documents[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](DocumentId a, DocumentId b) { return tokens_of(a) > tokens_of(b); });
  std::vector<ReplicaDocuments> dealt(static_cast<std::size_t>(replicas));
  std::vector<double> seconds(static_cast<std::size_t>(replicas), 0);
  for (const DocumentId id : order) {
    // A free model deals nothing unevenly either: fewer documents decide between equal times.
    std::size_t least = 0;
    for (std::size_t i = 1; i < dealt.size(); ++i) {
      const bool fewer = dealt[i].ids.size() < dealt[least].ids.size();
      if (seconds[i] < seconds[least] || (seconds[i] == seconds[least] && fewer)) least = i;
    }
    dealt[least].ids.push_back(id);
    dealt[least].tokens.push_back(tokens_of(id));
    seconds[least] += cost.piece(0, tokens_of(id));
  }
  return dealt;
}

std::int32_t largest_k(const PipelineLayout& layout, const DppOptions& options) {
  return options.max_slices > 0 ? options.max_slices : 4 * layout.pp;
}

// The values of K tried: every one to 8, then steps of K/4, and `most` itself.
std::vector<std::int32_t> slice_counts(std::int32_t most) {
  std::vector<std::int32_t> counts;
  for (std::int32_t k = 1; k < most; k += std::max(1, k > 8 ? k / 4 : 1)) counts.push_back(k);
  counts.push_back(most);
  return counts;
}

// The fastest candidate when run alone, those whose window fits first; ties: the smallest K.
std::optional<ReplicaPlan> plan_replica(const ReplicaDocuments& documents, const StageCost& cost,
                                        const PipelineLayout& layout, const std::vector<std::int64_t>& stage_layers,
                                        const DppOptions& options) {
  // Whole units of sp, so that a chunk's padded rows stay within the capacity too.
  const std::int64_t capacity = options.chunk_tokens / layout.sp * layout.sp;
  std::optional<ReplicaPlan> best;
  for (const std::int32_t slices : slice_counts(largest_k(layout, options))) {
    std::optional<SliceMesh> mesh = make_mesh(cost, documents.tokens.front(), slices, layout.sp);
    if (!mesh || mesh->most_tokens() > capacity) continue;
    const DppCandidate candidate = make_candidate(documents, cost, layout, std::move(*mesh), options.window_tokens);
    if (best && best->window_fits && !candidate.window_fits) continue;
    ReplicaPlan plan = assemble_replica(candidate_slots(candidate, documents), layout, stage_layers, cost);
    plan.mesh_slices = slices;
    plan.token_cap = candidate.mesh.most_tokens();
    plan.window_fits = candidate.window_fits;
    const bool fits_first = best && plan.window_fits && !best->window_fits;
    if (!best || fits_first || plan.modelled_seconds < best->modelled_seconds) best = std::move(plan);
  }
  return best;
}

}  // namespace

Applicable<PipelinePlan> plan_dpp(const Batch& batch, std::int64_t layers, const PipelineLayout& layout,
                                  const DppCostModel& cost, const DppOptions& options) {
  std::string reason = pipeline_not_applicable(batch, layers, layout);
  if (!reason.empty()) return tl::unexpected(std::move(reason));
  if (batch.documents.size() < static_cast<std::size_t>(layout.dp)) {
    return tl::unexpected(
        fmt::format("{} documents cannot be dealt to dp = {} replicas", batch.documents.size(), layout.dp));
  }
  PipelinePlan plan{layout, stage_layers(layers, layout.pp), {}};
  const StageCost stage_cost(cost, layers, layout);
  for (const ReplicaDocuments& documents : deal_documents(batch, stage_cost, layout.dp)) {
    std::optional<ReplicaPlan> replica = plan_replica(documents, stage_cost, layout, plan.stage_layers, options);
    if (!replica) {
      return tl::unexpected(
          fmt::format("no number of slices up to {} brings the document of {} tokens under {} tokens "
                      "a chunk in slices of at least sp = {} tokens",
                      largest_k(layout, options), documents.tokens.front(), options.chunk_tokens, layout.sp));
    }
    plan.replicas.push_back(std::move(*replica));
  }
  check_plan(plan, batch);
  return plan;
}

}  // namespace longhaul
