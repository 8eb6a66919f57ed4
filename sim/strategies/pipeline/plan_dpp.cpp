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

// The values of T_m tried for a mesh: its largest cell, doubled while under the capacity, and the capacity. They end at
// the first that no batched chunk can exceed: a larger one changes nothing.
std::vector<std::int64_t> token_caps(const SliceMesh& mesh, std::int64_t capacity, std::int64_t tokens) {
  std::vector<std::int64_t> caps;
  const std::int64_t most = std::max(mesh.most_tokens(), std::min(capacity, tokens));
  for (std::int64_t cap = mesh.most_tokens(); cap < most; cap *= 2) caps.push_back(cap);
  caps.push_back(most);
  return caps;
}

// The fastest candidate when run alone, those whose window fits first; ties: a mesh's own cell as T_m,
// then the smallest K, then the smallest T_m.
class ReplicaPlanner {
 public:
  ReplicaPlanner(const ReplicaDocuments& documents, const StageCost& cost, const PipelineLayout& layout,
                 const std::vector<std::int64_t>& stage_layers, const DppOptions& options)
      : documents_(documents), cost_(cost), layout_(layout), stage_layers_(stage_layers), options_(options) {}

  std::optional<ReplicaPlan> plan() {
    // Whole units of sp, so that a chunk's padded rows stay within the capacity too.
    const std::int64_t capacity = options_.chunk_tokens / layout_.sp * layout_.sp;
    const std::int64_t tokens = std::accumulate(documents_.tokens.begin(), documents_.tokens.end(), std::int64_t{0});
    std::vector<SliceMesh> meshes;
    for (const std::int32_t slices : slice_counts(largest_k(layout_, options_))) {
      const std::optional<SliceMesh> mesh = make_mesh(cost_, documents_.tokens.front(), slices, layout_.sp);
      if (!mesh || mesh->most_tokens() > capacity) continue;
      try_candidate(*mesh, mesh->most_tokens());
      meshes.push_back(*mesh);
    }
    // Larger caps after the cells' own of every K: a good plan by then rules most of them out.
    for (const SliceMesh& mesh : meshes) {
      for (const std::int64_t cap : token_caps(mesh, capacity, tokens)) {
        if (cap > mesh.most_tokens() && !try_candidate(mesh, cap)) break;
      }
    }
    return std::move(best_);
  }

 private:
  // False once one chunk alone takes longer through all stages than the best plan: larger caps make it longer still.
  bool try_candidate(const SliceMesh& mesh, std::int64_t token_cap) {
    const DppCandidate candidate = make_candidate(documents_, cost_, layout_, mesh, token_cap, options_.window_tokens);
    const bool fits_first = best_ && candidate.window_fits && !best_->window_fits;
    if (best_ && best_->window_fits && !candidate.window_fits) return true;
    // The slowest stage runs all chunks, and every chunk passes through all stages: the candidate cannot be faster.
    const auto layers = static_cast<double>(std::accumulate(stage_layers_.begin(), stage_layers_.end(), 0LL));
    const auto slowest = static_cast<double>(*std::max_element(stage_layers_.begin(), stage_layers_.end()));
    const bool bounded = best_ && !fits_first;
    if (bounded && layers / slowest * candidate.longest_seconds > best_->modelled_seconds) return false;
    if (bounded && candidate.seconds > best_->modelled_seconds) return true;
    ReplicaPlan plan = assemble_replica(candidate_slots(candidate, documents_), layout_, stage_layers_, cost_);
    plan.mesh_slices = mesh.slices();
    plan.token_cap = token_cap;
    plan.window_fits = candidate.window_fits;
    if (!best_ || fits_first || plan.modelled_seconds < best_->modelled_seconds) best_ = std::move(plan);
    return true;
  }

  const ReplicaDocuments& documents_;
  const StageCost& cost_;
  const PipelineLayout& layout_;
  const std::vector<std::int64_t>& stage_layers_;
  const DppOptions& options_;
  std::optional<ReplicaPlan> best_;
};

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
    std::optional<ReplicaPlan> replica =
        ReplicaPlanner(documents, stage_cost, layout, plan.stage_layers, options).plan();
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
