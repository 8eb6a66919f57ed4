// DPP's time model of one chunk on one stage (dpp.md 2.2, Eq. 1-4), the planner's only notion of time.
//
//   T = f/d_s (alpha1 ((C+s0)^2 - C^2) + alpha2 s0 + sum over whole documents (alpha1 s^2 + alpha2 s)) + f beta1
//       + f L (a2a_token tok + a2a_fixed)                     f = layers of the slowest stage / L
//
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
};

struct DppCostModel {
  PassCost forward;
  PassCost backward;
  bool recompute = false;  // full: every backward runs its forward again, all-to-alls included (Eq. 11)
};

// Forward + backward (+ recompute) of one stage as a quadratic: attention (end^2 - begin^2) + linear tokens + fixed.
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
};

}  // namespace longhaul
