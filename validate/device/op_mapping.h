// Which kernel runs each op of a schedule. Total over every kind, function and collective: what has no kernel is a
// typed error that names the op, never skipped.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/schedule/op.h"

namespace longhaul {

enum class MappedKernel : std::uint8_t {
  kGemm,              // cuBLASLt
  kAttentionForward,  // cuDNN where one call does it, else our kernels over pieces
  kAttentionBackward,
  kMerge,
  kEmbedding,  // rows copied by id
  kEmbeddingBackward,
  kRmsNorm,
  kRmsNormBackward,
  kRope,
  kSwiglu,
  kSwigluBackward,
  kAdd,
  kCopyRows,  // accumulate, cast, moves, column splits and joins
  kFill,      // zero
  kGiven,     // uploaded before the op's followers run; nothing is launched
  kCrossEntropy,
  kAdamw,
  kTransport,  // collectives: NCCL or copies on the device
};
const char* to_string(MappedKernel kernel);

// nullopt: no kernel (a function that its kind does not have).
std::optional<MappedKernel> mapped_kernel(const Op& op);
// The same, or a DeviceFault (kUnsupported) that names the op.
MappedKernel require_kernel(const Op& op, std::int32_t rank, std::int32_t position);

}  // namespace longhaul
