#include "validate/device/op_mapping.h"

#include <fmt/format.h>

#include "validate/device/device_fault.h"

namespace longhaul {
namespace {

std::optional<MappedKernel> elementwise_kernel(Function function) {
  switch (function) {
    case Function::kEmbedding:
      return MappedKernel::kEmbedding;
    case Function::kEmbeddingBackward:
      return MappedKernel::kEmbeddingBackward;
    case Function::kRmsNorm:
      return MappedKernel::kRmsNorm;
    case Function::kRmsNormBackward:
      return MappedKernel::kRmsNormBackward;
    case Function::kRope:
    case Function::kRopeBackward:
      return MappedKernel::kRope;
    case Function::kSwiGlu:
      return MappedKernel::kSwiglu;
    case Function::kSwiGluBackward:
      return MappedKernel::kSwigluBackward;
    case Function::kAdd:
      return MappedKernel::kAdd;
    case Function::kAccumulate:
    case Function::kCast:
      return MappedKernel::kCopyRows;
    case Function::kZero:
      return MappedKernel::kFill;
    case Function::kGiven:
      return MappedKernel::kGiven;
    case Function::kCrossEntropy:
      return MappedKernel::kCrossEntropy;
    case Function::kNone:
    case Function::kSplitColumns:
    case Function::kJoinColumns:
      return std::nullopt;
  }
  return std::nullopt;
}

bool moves(Function function) {
  return function == Function::kNone || function == Function::kSplitColumns || function == Function::kJoinColumns;
}

}  // namespace

const char* to_string(MappedKernel kernel) {
  switch (kernel) {
    case MappedKernel::kGemm:
      return "gemm";
    case MappedKernel::kAttentionForward:
      return "attention_forward";
    case MappedKernel::kAttentionBackward:
      return "attention_backward";
    case MappedKernel::kMerge:
      return "merge";
    case MappedKernel::kEmbedding:
      return "embedding";
    case MappedKernel::kEmbeddingBackward:
      return "embedding_backward";
    case MappedKernel::kRmsNorm:
      return "rms_norm";
    case MappedKernel::kRmsNormBackward:
      return "rms_norm_backward";
    case MappedKernel::kRope:
      return "rope";
    case MappedKernel::kSwiglu:
      return "swiglu";
    case MappedKernel::kSwigluBackward:
      return "swiglu_backward";
    case MappedKernel::kAdd:
      return "add";
    case MappedKernel::kCopyRows:
      return "copy_rows";
    case MappedKernel::kFill:
      return "fill";
    case MappedKernel::kGiven:
      return "given";
    case MappedKernel::kCrossEntropy:
      return "cross_entropy";
    case MappedKernel::kAdamw:
      return "adamw";
    case MappedKernel::kTransport:
      return "transport";
  }
  return "";
}

std::optional<MappedKernel> mapped_kernel(const Op& op) {
  const bool plain = op.function == Function::kNone;
  switch (op.kind) {
    case OpKind::kGemm:
      return plain ? std::optional(MappedKernel::kGemm) : std::nullopt;
    case OpKind::kAttention:
      if (!plain) return std::nullopt;
      return op.pass == Pass::kBackward ? MappedKernel::kAttentionBackward : MappedKernel::kAttentionForward;
    case OpKind::kMergePartials:
      return plain ? std::optional(MappedKernel::kMerge) : std::nullopt;
    case OpKind::kElementwise:
      return elementwise_kernel(op.function);
    case OpKind::kMove:
      return moves(op.function) ? std::optional(MappedKernel::kCopyRows) : std::nullopt;
    case OpKind::kOptimizer:
      return plain ? std::optional(MappedKernel::kAdamw) : std::nullopt;
    case OpKind::kCollective:
      return plain ? std::optional(MappedKernel::kTransport) : std::nullopt;
  }
  return std::nullopt;
}

MappedKernel require_kernel(const Op& op, std::int32_t rank, std::int32_t position) {
  const std::optional<MappedKernel> kernel = mapped_kernel(op);
  if (kernel) return *kernel;
  throw DeviceFault(
      FaultKind::kUnsupported, {rank, position, fmt::format("rank {} `{}`", rank, op.label), ""},
      fmt::format("no kernel for op kind {} with function {}", static_cast<int>(op.kind), to_string(op.function)));
}

}  // namespace longhaul
