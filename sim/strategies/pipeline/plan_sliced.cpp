#include <fmt/format.h>

#include <algorithm>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/strategies/pipeline/planners.h"
#include "sim/strategies/pipeline/replica_plan.h"

namespace longhaul {
namespace {

// Whole documents of one micro-batch, in order.
struct MicroBatch {
  std::vector<DocumentId> documents;
  std::int64_t tokens = 0;
};

MicroBatch gather(const Batch& batch, std::int64_t first_sequence, std::int64_t sequences) {
  MicroBatch micro_batch;
  for (std::int64_t i = first_sequence; i < first_sequence + sequences; ++i) {
    const Sequence& sequence = batch.sequences[static_cast<std::size_t>(i)];
    micro_batch.documents.insert(micro_batch.documents.end(), sequence.documents.begin(), sequence.documents.end());
    micro_batch.tokens += sequence.tokens;
  }
  return micro_batch;
}

// Tokens of the micro-batch before modelled time `seconds`: whole documents, then the root inside one.
std::int64_t tokens_at(const Batch& batch, const MicroBatch& micro_batch, const StageCost& cost, double seconds) {
  std::int64_t tokens = 0;
  for (const DocumentId document : micro_batch.documents) {
    const std::int64_t length = batch.documents[static_cast<std::size_t>(document)];
    const double whole = cost.piece(0, length);
    if (seconds >= whole) {
      seconds -= whole;
      tokens += length;
      continue;
    }
    std::int64_t low = 0;  // piece(0, low) <= seconds < piece(0, high)
    std::int64_t high = length;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (cost.piece(0, middle) <= seconds ? low : high) = middle;
    }
    return tokens + low;
  }
  return tokens;
}

// Slice boundaries in units of sp tokens, 0 .. all; strictly rising, so that no slice is empty.
std::vector<std::int64_t> unit_cuts(const Batch& batch, const MicroBatch& micro_batch, const StageCost& cost,
                                    std::int32_t sp, const SlicedOptions& options) {
  const std::int64_t units = ceil_div(micro_batch.tokens, sp);
  const std::int64_t slices = std::min<std::int64_t>(options.slices, units);
  double work = 0;
  for (const DocumentId document : micro_batch.documents) {
    work += cost.piece(0, batch.documents[static_cast<std::size_t>(document)]);
  }
  std::vector<std::int64_t> cuts{0};
  for (std::int64_t j = 1; j < slices; ++j) {
    std::int64_t cut = units * j / slices;
    if (options.policy == SlicePolicy::kEqualTime && work > 0) {
      const double share = work * static_cast<double>(j) / static_cast<double>(slices);
      cut = (tokens_at(batch, micro_batch, cost, share) + sp / 2) / sp;
    }
    // Every slice, those after this cut included, keeps at least one unit.
    cuts.push_back(std::clamp(cut, cuts.back() + 1, units - (slices - j)));
  }
  cuts.push_back(units);
  return cuts;
}

SlotSequence cut_micro_batch(const Batch& batch, const MicroBatch& micro_batch, const std::vector<std::int64_t>& cuts,
                             std::int32_t sp) {
  SlotSequence slots(cuts.size() - 1);
  std::size_t slot = 0;
  std::int64_t at = 0;  // tokens of the micro-batch so far
  for (const DocumentId document : micro_batch.documents) {
    const std::int64_t length = batch.documents[static_cast<std::size_t>(document)];
    for (std::int64_t first = 0; first < length;) {
      const std::int64_t slot_end = std::min(cuts[slot + 1] * sp, micro_batch.tokens);
      if (at == slot_end) {
        ++slot;
        continue;
      }
      const std::int64_t tokens = std::min(length - first, slot_end - at);
      slots[slot].pieces.push_back({.document = document, .first = first, .tokens = tokens});
      first += tokens;
      at += tokens;
    }
  }
  return slots;
}

}  // namespace

Applicable<PipelinePlan> plan_sliced_1f1b(const Batch& batch, std::int64_t layers, const PipelineLayout& layout,
                                          const DppCostModel& cost, const SlicedOptions& options) {
  LH_ASSERT(options.slices >= 1 && options.micro_batch_sequences >= 1, "{} slices of {} sequences", options.slices,
            options.micro_batch_sequences);
  std::string reason = pipeline_not_applicable(batch, layers, layout);
  if (!reason.empty()) return tl::unexpected(std::move(reason));
  const auto sequences = static_cast<std::int64_t>(batch.sequences.size());
  const std::int64_t per_slot = options.micro_batch_sequences;
  if (sequences == 0 || sequences % (layout.dp * per_slot) != 0) {
    return tl::unexpected(
        fmt::format("{} sequences do not fill dp = {} x micro-batches of {} evenly", sequences, layout.dp, per_slot));
  }
  PipelinePlan plan{layout, stage_layers(layers, layout.pp), {}};
  const StageCost stage_cost(cost, layers, layout);
  for (std::int64_t replica = 0; replica < layout.dp; ++replica) {
    std::vector<SlotSequence> slots;
    for (std::int64_t m = 0; m < sequences / (layout.dp * per_slot); ++m) {
      const MicroBatch micro_batch = gather(batch, (m * layout.dp + replica) * per_slot, per_slot);
      const std::vector<std::int64_t> cuts = unit_cuts(batch, micro_batch, stage_cost, layout.sp, options);
      slots.push_back(cut_micro_batch(batch, micro_batch, cuts, layout.sp));
    }
    plan.replicas.push_back(assemble_replica({std::move(slots)}, layout, plan.stage_layers, stage_cost));
  }
  check_plan(plan, batch);
  return plan;
}

}  // namespace longhaul
