// The pipeline planners: 1f1b, seq1f1b and dpp. Pure functions of their input; deterministic.
#pragma once

#include <cstdint>

#include "sim/strategies/pipeline/cost.h"
#include "sim/strategies/pipeline/plan.h"

namespace longhaul {

enum class SlicePolicy : std::uint8_t {
  kEqualTokens,  // boundaries at equal tokens, rounded to multiples of sp
  kEqualTime,    // boundaries at equal modelled time, rounded to multiples of sp
};

struct SlicedOptions {
  std::int64_t micro_batch_sequences = 1;  // packed sequences that one micro-batch holds
  std::int32_t slices = 4;                 // of each micro-batch; 1 is plain 1F1B
  SlicePolicy policy = SlicePolicy::kEqualTokens;
};

// seq1f1b as DPP's baseline ("fixed-size split + pack with static checkpointing", dpp.md 5), and 1f1b with slices = 1.
// Micro-batch m of replica r holds packed sequences (m dp + r) b .. + b - 1, b = micro_batch_sequences, one after
// another; it is cut at multiples of sp into `slices` slices, into fewer if it has fewer than `slices` x sp tokens.
// Documents keep their order; one that a cut crosses continues in the next slice with its context.
// Not applicable: see pipeline_not_applicable; sequences that do not fill dp x micro_batch_sequences evenly.
Applicable<PipelinePlan> plan_sliced_1f1b(const Batch& batch, std::int64_t layers, const PipelineLayout& layout,
                                          const DppCostModel& cost, const SlicedOptions& options);

struct DppOptions {
  std::int64_t chunk_tokens = 0;   // token capacity of one chunk (script C of dpp.md 3), from memory; at least 1
  std::int64_t window_tokens = 0;  // tokens that stage 0 may keep alive at once, from memory; 0: no limit
  std::int32_t max_slices = 0;     // largest K tried; 0: 4 pp
};

// DPP, dpp.md 3 and 4.1-4.3 with recompute fixed by `cost.recompute` (4.4, chunk-level checkpointing, is not here).
//
// Documents are dealt to replicas longest modelled time first, each to the replica with the least time so far (ties:
// lower document, lower replica). Every replica then tries K = 1, 2, .. max_slices slices of its longest document
// (every K to 8, then steps of K/4), and for each the token caps T_m of Alg. 1 (dpp.md 3 leaves its second bound open):
// the tokens of the mesh's largest cell, doubled up to chunk_tokens. A large cap packs short documents into few chunks,
// which saves what every chunk costs and lengthens the pp - 1 bubbles. Kept is the candidate whose order, run alone
// (alone.h) with the modelled times, is the fastest (ties: a cell's own cap, the smallest K, the smallest cap);
// dpp.md 4.3's total would rank them without the bubbles between unequal chunks.
// With recompute fixed, T_ckpt is part of the chunk times, and a grouping is infeasible when its window (Eq. 7) keeps
// more than window_tokens; if every grouping of every K is, one stream is planned and window_fits is false.
// Not applicable: see pipeline_not_applicable; fewer documents than replicas; a longest document that max_slices
// slices do not bring under chunk_tokens.
Applicable<PipelinePlan> plan_dpp(const Batch& batch, std::int64_t layers, const PipelineLayout& layout,
                                  const DppCostModel& cost, const DppOptions& options);

}  // namespace longhaul
