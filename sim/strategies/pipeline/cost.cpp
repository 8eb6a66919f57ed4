#include "sim/strategies/pipeline/cost.h"

#include <algorithm>

#include "sim/core/invariant.h"

namespace longhaul {

StageCost::StageCost(const DppCostModel& model, std::int64_t layers, const PipelineLayout& layout) {
  LH_ASSERT(layers >= layout.pp && layout.pp >= 1 && layout.sp >= 1, "{} layers, pp = {}, sp = {}", layers, layout.pp,
            layout.sp);
  const double stage = static_cast<double>((layers + layout.pp - 1) / layout.pp);  // layers of the slowest stage
  const double part = stage / static_cast<double>(layers);
  const double part_of_gpu = part / layout.sp;
  const double forwards = model.recompute ? 2 : 1;
  const PassCost& f = model.forward;
  const PassCost& b = model.backward;
  forward_attention_ = part_of_gpu * f.alpha1;
  forward_linear_ = part_of_gpu * f.alpha2 + stage * f.a2a_token;
  forward_fixed_ = part * f.beta1 + stage * f.a2a_fixed;
  attention_ = forwards * forward_attention_ + part_of_gpu * b.alpha1;
  linear_ = forwards * forward_linear_ + part_of_gpu * b.alpha2 + stage * b.a2a_token;
  fixed_ = forwards * forward_fixed_ + part * b.beta1 + stage * b.a2a_fixed;
  forward_zero3_ = f.zero3;
  backward_zero3_ = b.zero3;
}

double StageCost::piece(std::int64_t first, std::int64_t tokens) const {
  const auto s = static_cast<double>(tokens);
  return attention_ * s * (2 * static_cast<double>(first) + s) + linear_ * s;
}

double StageCost::chunk(const PipelineChunk& chunk) const {
  double seconds = fixed_;
  for (const DocumentPiece& one : chunk.pieces) seconds += piece(one.first, one.tokens);
  const double forward = forward_compute(chunk);
  // A recomputed forward uses the weights that the backward pass has gathered.
  return std::max(forward, forward_zero3_) + std::max(seconds - forward, backward_zero3_);
}

double StageCost::chunk_forward(const PipelineChunk& chunk) const {
  return std::max(forward_compute(chunk), forward_zero3_);
}

double StageCost::forward_compute(const PipelineChunk& chunk) const {
  double seconds = forward_fixed_;
  for (const DocumentPiece& one : chunk.pieces) {
    const auto s = static_cast<double>(one.tokens);
    seconds += forward_attention_ * s * (2 * static_cast<double>(one.first) + s) + forward_linear_ * s;
  }
  return seconds;
}

}  // namespace longhaul
