// What a device is asked to run: calls of kernels on a rank's memory, with every size, stride and row list resolved.
//
// An op of a schedule becomes a short list of calls (lowering.h). A device knows nothing of schedules: it runs calls.
// Addresses are (part of memory, byte offset): the same calls serve host memory and device memory. Matrices are
// row-major; bf16 operands, fp32 arithmetic, one rounding at a store. A call writes nothing but what it names as
// written.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "kernels/gemm/gemm_problem.h"
#include "sim/schedule/piece.h"
#include "sim/schedule/tensor.h"

namespace longhaul {

enum class MemoryPart : std::uint8_t {
  kArena,     // tensors (arena_plan.h)
  kScratch,   // of one stream: free again when the op ends
  kConstant,  // written before the step, read by it: row lists, positions, targets
  kLoss,      // fp32, one a row that the loss may count; read after the step
};
struct Address {
  MemoryPart part = MemoryPart::kArena;
  std::int64_t offset = 0;  // bytes
  auto operator<=>(const Address&) const = default;
  Address operator+(std::int64_t bytes) const { return {part, offset + bytes}; }
};
inline constexpr std::int64_t kNoIndex = -1;

// rows x columns elements, `stride` elements from row to row. With `index` (offset of int32 row numbers in the constant
// segment) row i is row index[i] of the base; where reading, a negative number stands for a row of zeros.
struct Rows {
  Address base;
  ElementType type = ElementType::kBf16;
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::int64_t index = kNoIndex;
  bool dense() const { return index == kNoIndex; }
  bool tight() const { return dense() && (stride == columns || rows <= 1); }
};

// to (=, +=) from, converted.
struct CopyRowsCall {
  Rows from, to;
  bool accumulate = false;
};
// Every element becomes `value`.
struct FillRowsCall {
  Rows to;
  float value = 0;
};
// to (=, +=) the sum of all sources, in fp32 with one rounding. At least one source, at most kMostSources.
struct SumRowsCall {
  std::vector<Rows> from;
  Rows to;
  bool accumulate = false;
};
inline constexpr std::size_t kMostSources = 64;
struct GemmCall {
  GemmProblem problem;
  Address a, b, c;
};
// Tight tokens x width; r: tokens, fp32, 1 / sqrt(mean(x^2) + 1e-5).
struct RmsNormCall {
  std::int64_t tokens = 0, width = 0;
  Address x, w, y, r;
};
// r alone.
struct RmsScaleCall {
  std::int64_t tokens = 0, width = 0;
  Address x, r;
};
// dx (bf16) and dw (fp32, width) are overwritten. `scratch`: rms_backward_scratch floats.
struct RmsNormBackwardCall {
  std::int64_t tokens = 0, width = 0;
  Address x, w, r, dy, dx, dw, scratch;
};
// In place; positions: int32 by row, in the constant segment. Base 10000.
struct RopeCall {
  std::int64_t tokens = 0, stride = 0, heads = 0, head_dim = 0;
  Address x;
  std::int64_t positions = 0;
  bool inverse = false;
};
// gate and up are halves of rows of 2 width; y and dy tight.
struct SwigluCall {
  std::int64_t tokens = 0, width = 0;
  Address gate_up, y;
};
struct SwigluBackwardCall {
  std::int64_t tokens = 0, width = 0;
  Address gate_up, dy, d_gate_up;
};
// Gradient over the logits; targets: int32 by row in the constant segment, -100: not counted.
struct CrossEntropyCall {
  std::int64_t tokens = 0, vocabulary = 0, stride = 0;
  Address logits;
  std::int64_t targets = 0;
  Address loss;
  float scale = 0;
};
// table[ids[i]] (=, +=) the sum of rows listed[first[i]] .. listed[first[i + 1] - 1], i < count; other rows untouched.
struct EmbeddingBackwardCall {
  std::int64_t count = 0, width = 0;
  Address rows;                                 // tight, bf16
  Address table;                                // tight, bf16
  std::int64_t ids = 0, first = 0, listed = 0;  // int32 in the constant segment
  bool accumulate = false;
};
// Tight: q, o q_rows x q_heads x head_dim; k, v k_rows x kv_heads x head_dim; lse q_rows x q_heads, fp32. Rows of o
// that no piece names become 0, their lse minus infinity. Piece rows index these tensors; operand is 0.
struct AttentionForwardCall {
  std::int64_t q_rows = 0, k_rows = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  std::shared_ptr<const std::vector<Piece>> pieces;
  Address q, k, v, o, lse;
};
// Rows of the gradients that no piece names become 0.
struct AttentionBackwardCall {
  std::int64_t q_rows = 0, k_rows = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  std::shared_ptr<const std::vector<Piece>> pieces;
  Address q, k, v, o, lse, d_o, dq, dk, dv;
};
// Tight parts; row i goes into row index[i] (i without index) of o and lse.
struct MergeCall {
  std::int64_t rows = 0, heads = 0, head_dim = 0;
  Address part_o, part_lse, o, lse;
  std::int64_t index = kNoIndex;
};
// First step of AdamW (kernels/elementwise/adamw.h); w, m, v and gradient fp32, `weights` bf16.
struct AdamwCall {
  std::int64_t count = 0;
  Address gradient, w, m, v, weights;
};

using DeviceCall =
    std::variant<CopyRowsCall, FillRowsCall, SumRowsCall, GemmCall, RmsNormCall, RmsScaleCall, RmsNormBackwardCall,
                 RopeCall, SwigluCall, SwigluBackwardCall, CrossEntropyCall, EmbeddingBackwardCall,
                 AttentionForwardCall, AttentionBackwardCall, MergeCall, AdamwCall>;
// "copy_rows", "gemm", ...
const char* kernel_name(const DeviceCall& call);

// Floats of scratch of RmsNormBackwardCall: what kernels/elementwise/rms_norm.h asks for, at most.
constexpr std::int64_t rms_backward_scratch(std::int64_t width) { return 1056 * width; }

// AdamW's settings (as validate/cpu/elementwise.cpp has them).
inline constexpr double kLearningRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.95, kAdamEpsilon = 1e-8, kWeightDecay = 0.1;
inline constexpr double kRopeBase = 10000.0, kNormEpsilon = 1e-5;

}  // namespace longhaul
