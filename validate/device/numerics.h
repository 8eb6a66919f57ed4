// How far a step on a device is from a reference: ||x - ref|| / ||ref|| (Frobenius, in double) of every quantity.
//
// Quantities: "loss"; "O", "dQ", "dK", "dV" (gradients of the QKV projection's output); parameter gradients
// "embedding", "attention_norm", "qkv", "output", "ffn_norm", "gate_up", "down", "extra" (bias of QKV and norms of Q
// and K, of models that have them: no op gives them a gradient, and zeros must arrive), "final_norm", "head". An error
// is the worst layer's, over every rank and recompute instance that holds the quantity; a reference element that no
// rank holds makes it infinite. ||ref|| of dQ and dK counts as at least kGradientFloor ||dV||: where a row sees hardly
// a key besides its own they vanish, and rounding of terms as large as dV is all that is left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "validate/cpu/reference.h"
#include "validate/device/step_rows.h"

namespace longhaul {

inline constexpr double kGradientFloor = 1e-2;

// What the checks read of a step.
StepWish numerics_wish(const Schedule& schedule);
// The same and what sampled rows need (row_reference.h).
StepWish row_wish(const Schedule& schedule);

// Rows of one quantity in reference order: values of their own, or columns of a step's rows.
struct ReferenceRows {
  std::int64_t columns = 0;
  RowTable<float> values;
  RowView rounded;
  std::int64_t first_column = 0;  // of `rounded`
};

// What a step is compared with, in reference order: the double-precision step, or a step of an undistributed schedule.
struct StepReference {
  std::string name;  // "fp64", "undistributed-bf16"
  double loss = 0;
  struct Layer {
    ReferenceRows o, dq, dk, dv;
  };
  std::vector<Layer> layers;
  std::shared_ptr<const StepOutcome> step;  // whose rows `layers` points to, of an undistributed step
  std::vector<float> embedding_grads, head_grads;
  std::vector<std::vector<float>> layer_grads;
};
// Values are kept as floats: errors below 1e-7 of a value are not seen.
StepReference reference_of(const ModelShape& model, const Reference& reference);
StepReference reference_of(const Schedule& undistributed, std::shared_ptr<const StepOutcome> outcome);

struct QuantityNorm {
  std::string quantity;
  double error = 0;
  std::int64_t elements = 0;  // compared, on every rank that holds them
  std::int64_t missing = 0;   // elements of the reference that no rank holds
  std::string worst;          // "layer 1, rank 3": the layer, and the rank with the largest share of its difference
};
std::vector<QuantityNorm> relative_errors(const Schedule& schedule, const StepOutcome& outcome,
                                          const StepReference& reference);

// Whether nothing is missing and the error within its limit. A limit of kErrorOfZeros and more, which a broken
// undistributed step gives, allows nothing: the same fault may be in both.
bool within_limit(const NumericsResult& result);

struct NumericsLimits {
  double activations = 2e-2;     // O, dQ, dK, dV, loss
  double gradient_factor = 2.0;  // of the undistributed run's error, for parameter gradients
};
// `undistributed`: errors of the undistributed bf16 step against the same reference; empty: parameter gradients are
// held to the limit of activations.
std::vector<NumericsResult> judge(const std::vector<QuantityNorm>& errors,
                                  const std::vector<QuantityNorm>& undistributed, const std::string& reference,
                                  const NumericsLimits& limits = {});
// Of a step against the undistributed bf16 step: every quantity within the limit of activations or, where that is more,
// twice what a second undistributed step differs by whose attention runs in other kernels (`other`; empty: none ran).
// Two bf16 steps drift apart with every layer, however they are distributed.
std::vector<NumericsResult> judge_against_step(const std::vector<QuantityNorm>& errors,
                                               const std::vector<QuantityNorm>& other,
                                               const NumericsLimits& limits = {});

}  // namespace longhaul
