// One call that `longhaul calibrate` times: a row of `longhaul cost` (cli.md, "Row formats") and its class.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

enum class CallClass : std::uint8_t {
  kGemm,         // cuBLASLt, bf16, three passes
  kAttention,    // cuDNN, one piece
  kVarlen,       // cuDNN, packed, sharded and sliced piece lists in one ragged call
  kDiffusion,    // our own kernels, block-diffusion masks as piece lists
  kElementwise,  // our own memory-bound kernels
  kCopy,         // device and host, both ways
  kLaunch,       // an empty kernel
  kOverlap,      // slow-down of compute beside copies and, with several GPUs, collectives: a table of its own
  kCollectives,  // NCCL, with several GPUs: a table of its own
};
inline constexpr int kCallClassCount = 9;

// "gemm", "attention", "varlen", "diffusion", "elementwise", "copy", "launch", "overlap", "collectives"
std::string_view class_name(CallClass call_class);
std::vector<std::string> class_names();

// Classes by name, each once, in the order of the enumerators; all where `names` is empty. Errors name `option` and
// every name that is none.
Expected<std::vector<CallClass>> parse_classes(const std::vector<std::string>& names, const std::string& option);

struct CalibrationCall {
  CallClass call_class = CallClass::kGemm;
  // Columns of `cost`; what a class has no use for is 0 or empty.
  std::string op, pass;
  std::int64_t m = 0, n = 0, k = 0;  // elementwise: tokens, elements of a token (cross-entropy: the vocabulary)
  std::int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  std::string mask, pieces;
  std::int64_t bytes = 0;  // elementwise: read plus written, each once; copy: payload
  // "FAMILY/SIZE": a fit leaves rows of one family out together (validate/fit/kernel_rows.h).
  std::string name;
  std::string kernel;  // elementwise: which

  bool operator==(const CalibrationCall&) const = default;
};

// The columns that name a call, in the order of call_columns(); 0 is written as nothing, as `cost` has it.
std::vector<std::string> call_fields(const CalibrationCall& call);
const std::vector<std::string>& call_columns();

// "gemm fwd 4096x14336x4096", "attention bwd causal 32/8 heads of 128, 8192x8192", long piece lists cut short.
std::string describe(const CalibrationCall& call);

}  // namespace longhaul
