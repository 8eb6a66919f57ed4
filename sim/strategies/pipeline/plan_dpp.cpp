#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "sim/core/invariant.h"
#include "sim/strategies/pipeline/dpp_candidate.h"
#include "sim/strategies/pipeline/planners.h"

namespace longhaul {
namespace {

// Candidates that are run alone after 4.3's total has ranked all of them: the total ignores bubbles between unequal
// chunks, which the run sees.
constexpr std::size_t kFinalists = 8;

// Longest modelled time first, each to the replica with the least time so far.
std::vector<ReplicaDocuments> deal_documents(const Batch& batch, const StageCost& cost, std::int32_t replicas) {
  std::vector<DocumentId> order(batch.documents.size());
  std::iota(order.begin(), order.end(), 0);
  const auto tokens_of = [&](DocumentId id) { return batch.documents[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](DocumentId a, DocumentId b) { return tokens_of(a) > tokens_of(b); });
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

// The values of K tried: every one to 8, then steps of K/4, and `most` itself.
std::vector<std::int32_t> slice_counts(std::int32_t most) {
  std::vector<std::int32_t> counts;
  for (std::int32_t k = 1; k < most; k += std::max(1, k > 8 ? k / 4 : 1)) counts.push_back(k);
  counts.push_back(most);
  return counts;
}

// T_m candidates for a mesh (dpp.md 3 leaves the choice open): as many tokens as the longest cell, which keeps the
// chunks' memory alike; or as many as take the cell's time without any attention, which keeps their times alike.
std::vector<std::int64_t> token_caps(const SliceMesh& mesh, const StageCost& cost, std::int64_t capacity) {
  const std::int64_t cell = mesh.most_tokens();
  std::int64_t linear = capacity;
  if (cost.linear() > 0) {
    const double tokens = mesh.cell_seconds / cost.linear();
    if (tokens < static_cast<double>(capacity)) linear = std::max(cell, static_cast<std::int64_t>(tokens));
  }
  std::vector<std::int64_t> caps{cell};
  if (linear > cell) caps.push_back(linear);
  return caps;
}

bool better(const DppCandidate& a, const DppCandidate& b) {
  return a.window_fits != b.window_fits ? a.window_fits : a.seconds < b.seconds;
}

std::vector<DppCandidate> list_candidates(const ReplicaDocuments& documents, const StageCost& cost,
                                          const PipelineLayout& layout, const DppOptions& options) {
  // Whole units of sp, so that a chunk's padded rows stay within the capacity too.
  const std::int64_t capacity = options.chunk_tokens / layout.sp * layout.sp;
  const std::int32_t most = options.max_slices > 0 ? options.max_slices : 4 * layout.pp;
  std::vector<DppCandidate> candidates;
  for (const std::int32_t slices : slice_counts(most)) {
    std::optional<SliceMesh> mesh = make_mesh(cost, documents.tokens.front(), slices, layout.sp);
    if (!mesh || mesh->most_tokens() > capacity) continue;
    for (const std::int64_t cap : token_caps(*mesh, cost, capacity)) {
      candidates.push_back(make_candidate(documents, cost, layout, *mesh, cap, options.window_tokens));
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), better);
  return candidates;
}

std::optional<ReplicaPlan> plan_replica(const ReplicaDocuments& documents, const StageCost& cost,
                                        const PipelineLayout& layout, const std::vector<std::int64_t>& stage_layers,
                                        const DppOptions& options) {
  const std::vector<DppCandidate> candidates = list_candidates(documents, cost, layout, options);
  std::optional<ReplicaPlan> best;
  for (std::size_t i = 0; i < std::min(kFinalists, candidates.size()); ++i) {
    const DppCandidate& candidate = candidates[i];
    if (candidate.window_fits != candidates.front().window_fits) break;
    ReplicaPlan plan = assemble_replica(candidate_slots(candidate, documents), layout, stage_layers, cost);
    plan.mesh_slices = candidate.mesh.slices();
    plan.token_cap = candidate.token_cap;
    plan.window_fits = candidate.window_fits;
    const bool fewer = best && plan.modelled_seconds == best->modelled_seconds && plan.mesh_slices < best->mesh_slices;
    if (!best || plan.modelled_seconds < best->modelled_seconds || fewer) best = std::move(plan);
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
      return tl::unexpected(fmt::format("no number of slices up to {} brings the document of {} tokens under {} tokens "
                                        "a chunk in slices of at least sp = {} tokens",
                                        options.max_slices > 0 ? options.max_slices : 4 * layout.pp,
                                        documents.tokens.front(), options.chunk_tokens, layout.sp));
    }
    plan.replicas.push_back(std::move(*replica));
  }
  check_plan(plan, batch);
  return plan;
}

}  // namespace longhaul
