#include "validate/gpu/calibrate/plan.h"

#include <algorithm>

#include "sim/core/invariant.h"
#include "validate/gpu/attention_rows.h"
#include "validate/gpu/calibrate/call_order.h"
#include "validate/gpu/calibrate/plan_parts.h"

namespace longhaul {
namespace {

constexpr std::int64_t kBf16 = 2, kFp32 = 4;

std::int64_t attention_bytes(const CalibrationCall& call) {
  const Expected<AttentionCall> rows =
      attention_call({call.name, call.q_heads, call.kv_heads, call.head_dim, call.mask, call.pieces});
  LH_ASSERT(rows.has_value(), "{} of the plan is no call", describe(call));
  const std::int64_t q = rows->q_rows * call.q_heads * call.head_dim;
  const std::int64_t k = rows->k_rows * call.kv_heads * call.head_dim;
  // q, o, dO, dQ; k, v, dK, dV; log-sum-exp.
  return (4 * q + 4 * k) * kBf16 + rows->q_rows * call.q_heads * kFp32;
}

}  // namespace

std::vector<CalibrationCall> calls_of_class(CallClass call_class) {
  switch (call_class) {
    case CallClass::kGemm:
      return gemm_calls();
    case CallClass::kAttention:
      return attention_calls();
    case CallClass::kVarlen:
      return varlen_calls();
    case CallClass::kDiffusion:
      return diffusion_calls();
    case CallClass::kElementwise:
      return elementwise_calls();
    case CallClass::kCopy:
      return copy_calls();
    case CallClass::kLaunch:
      return launch_calls();
    case CallClass::kOverlap:
    case CallClass::kCollectives:
      break;
  }
  return {};
}

std::vector<CalibrationCall> calibration_plan(const std::vector<CallClass>& classes, bool quick) {
  std::vector<std::vector<CalibrationCall>> lists;
  std::vector<std::size_t> lengths;
  for (const CallClass call_class : classes) {
    lists.push_back(calls_of_class(call_class));
    if (quick && lists.back().size() > kQuickCalls) lists.back().resize(kQuickCalls);
    lengths.push_back(lists.back().size());
  }
  std::vector<std::size_t> taken(lists.size(), 0);
  std::vector<CalibrationCall> plan;
  for (const std::size_t list : even_merge(lengths)) plan.push_back(std::move(lists[list][taken[list]++]));
  return plan;
}

std::int64_t operand_bytes(const CalibrationCall& call) {
  switch (call.call_class) {
    case CallClass::kGemm:
      return (call.m * call.k + call.k * call.n + call.m * call.n) * kBf16;
    case CallClass::kAttention:
    case CallClass::kVarlen:
    case CallClass::kDiffusion:
      return attention_bytes(call);
    case CallClass::kElementwise:
      return call.bytes;
    case CallClass::kCopy:
      return 2 * call.bytes;
    case CallClass::kLaunch:
    case CallClass::kOverlap:
    case CallClass::kCollectives:
      break;
  }
  return 0;
}

}  // namespace longhaul
