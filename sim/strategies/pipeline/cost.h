// DPP's time model of one chunk on one stage (dpp.md 2.2, Eq. 1-4), the planner's only notion of time.
//
//   T = f/d_s (alpha1 ((C+s0)^2 - C^2) + alpha2 s0 + sum over whole documents (alpha1 s^2 + alpha2 s)) + f beta1
//       + f L (a2a_token tok + a2a_fixed)                     f = layers of the slowest stage / L
//
// A pass of a chunk takes max(T, zero3): ZeRO 3's traffic for the chunk's weights runs beside compute (2.5), which
// hides it only in chunks that are long enough. Recompute repeats none of it. Ignored: the first layer's gather, which
// nothing hides, and what compute and traffic slow each other down.
// The paper writes 1/d_p for f; here stages may hold unequal layers and the slowest counts. Stage to stage transfers
// are neglected, as in the paper, and so are embedding and head.
#pragma once

#include <cstdint>

#include "sim/strategies/pipeline/plan.h"

namespace longhaul {

// Coefficients of one pass of the whole model. Attention and linear: seconds on one GPU.
struct PassCost {
  double alpha1 = 0;     // s / token^2: a causal document of s tokens costs alpha1 s^2
  double alpha2 = 0;     // s / token
  double beta1 = 0;      // s / chunk, all layers: launch cost and what else does not grow with tokens
  double a2a_token = 0;  // s / token / layer of the four all-to-alls: 2 e (D + D_kv) / (d_s B_a2a)
  double a2a_fixed = 0;  // s / layer: 4 beta_a2a
  // s / chunk / stage: ZeRO 3's gathers and reductions where they run for every chunk; beside compute, so the longer
  // of the two counts.
  double zero3 = 0;
};

struct DppCostModel {
  PassCost forward;
  PassCost backward;
  bool recompute = false;  // full: every backward runs its forward again, all-to-alls included (Eq. 11)
};

// Forward + backward (+ recompute) of one stage as a quadratic: attention (end^2 - begin^2) + linear tokens + fixed;
// zero3 only in chunk() and chunk_forward().
class StageCost {
 public:
  StageCost(const DppCostModel& model, std::int64_t layers, const PipelineLayout& layout);

  double piece(std::int64_t first, std::int64_t tokens) const;  // without `fixed`
  double chunk(const PipelineChunk& chunk) const;
  double chunk_forward(const PipelineChunk& chunk) const;  // the forward alone

  double attention() const { return attention_; }  // s / token^2
  double linear() const { return linear_; }        // s / token
  double fixed() const { return fixed_; }          // s / chunk

 private:
  double attention_ = 0, linear_ = 0, fixed_ = 0;
  double forward_attention_ = 0, forward_linear_ = 0, forward_fixed_ = 0;
  double forward_zero3_ = 0, backward_zero3_ = 0;
  double forward_compute(const PipelineChunk& chunk) const;
};

}  // namespace longhaul
