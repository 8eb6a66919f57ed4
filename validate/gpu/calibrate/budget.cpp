#include "validate/gpu/calibrate/budget.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/core/invariant.h"
#include "validate/gpu/attention_rows.h"

namespace longhaul {
namespace {

constexpr double kWarmUps = 2;
// A cold sample beside its call: 120 MB of flush at 3 TB/s, the probes of the clock, and the host's enqueueing and
// waiting (11 us a launch on a virtual machine, seven launches).
constexpr double kSampleSeconds = 150e-6;
// Samples beyond the fewest that noise asks for, on average.
constexpr double kNoiseFactor = 2;
// Operands come from one pool; piece plans are made on the host.
constexpr double kPrepareSeconds = 0.01;
constexpr double kLaunchSeconds = 1e-5;

double attention_seconds(const CalibrationCall& call, const KernelModel& model) {
  const Expected<AttentionCall> rows =
      attention_call({call.name, call.q_heads, call.kv_heads, call.head_dim, call.mask, call.pieces});
  LH_ASSERT(rows.has_value(), "{} of the plan is no call", describe(call));
  std::vector<AttentionPieceSize> pieces;
  for (const Piece& piece : rows->pieces) {
    const std::int64_t pairs = piece_pairs(piece);
    if (pairs > 0) pieces.push_back({piece.q_count, piece.k_count, pairs});
  }
  return call.pass == "fwd" ? model.attention_forward(pieces, call.q_heads, call.kv_heads, call.head_dim).seconds
                            : model.attention_backward(pieces, call.q_heads, call.kv_heads, call.head_dim).seconds;
}

}  // namespace

double predicted_call_seconds(const CalibrationCall& call, const KernelModel& model) {
  switch (call.call_class) {
    case CallClass::kGemm: {
      const GemmPass pass = call.pass == "fwd"         ? GemmPass::kForward
                            : call.pass == "bwd-input" ? GemmPass::kBackwardInput
                                                       : GemmPass::kBackwardWeight;
      return model.gemm(pass, call.m, call.n, call.k).seconds;
    }
    case CallClass::kAttention:
    case CallClass::kVarlen:
    case CallClass::kDiffusion:
      return attention_seconds(call, model);
    case CallClass::kElementwise:
      return model.elementwise(Bytes{call.bytes}).seconds;
    case CallClass::kCopy: {
      const CopyKind kind = call.pass == "d2d"   ? CopyKind::kDeviceToDevice
                            : call.pass == "h2d" ? CopyKind::kHostToDevice
                                                 : CopyKind::kDeviceToHost;
      return model.copy(kind, Bytes{call.bytes}).seconds;
    }
    case CallClass::kLaunch:
    case CallClass::kOverlap:
    case CallClass::kCollectives:
      break;
  }
  return kLaunchSeconds;
}

double predicted_row_seconds(const CalibrationCall& call, double call_seconds, const LoopLimits& limits) {
  const bool plans = call.call_class == CallClass::kAttention || call.call_class == CallClass::kVarlen;
  const double sample = call_seconds + kSampleSeconds;
  double cold = std::max(kNoiseFactor * static_cast<double>(limits.fewest_samples) * sample, limits.least_seconds);
  // The loop stops at the first sample that ends after most_seconds.
  cold = std::min(cold, limits.most_seconds + sample);
  // The loop ends at the first batch that ends after batch_seconds; the shortest batch has two calls.
  const double calls =
      std::clamp(std::ceil(limits.batch_seconds / call_seconds), 2.0, static_cast<double>(limits.most_batch_calls));
  const double batch = std::max(limits.batch_seconds + kSampleSeconds, calls * call_seconds);
  return kPrepareSeconds + (plans ? kPlanSeconds : 0) + kWarmUps * call_seconds + cold + batch;
}

}  // namespace longhaul
