// What a kernel's time is made of: the terms of each kernel class, computed from shapes alone.
//
// A class's time is the sum over its terms of constant x term, at least its memory traffic over the bandwidth. The
// fitting tool and the model both call these functions, so they cannot drift apart. How a term scales to a device
// that was not measured is part of its definition (TermKind).
//
// Classes are named as in the calibration file: "gemm", "elementwise", "copy-d2d", "copy-h2d", "copy-d2h",
// "elementwise/FUNCTION" ("elementwise/rms_norm"), "attention/LIBRARY/PASS/FORM" ("attention/cudnn/backward/ragged").
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/attention_span.h"
#include "sim/cost/estimate.h"

namespace longhaul {

inline constexpr int kMaxTerms = 9;
inline constexpr int kKeyLength = 6;

enum class TermKind {
  kFixed,           // per call: the same on every device
  kMultiprocessor,  // work of one multiprocessor: scales with peak / multiprocessors
  kDevice,          // work of the whole device: scales with the peak
  kMemory,          // bytes of device memory: scales with the memory bandwidth
  kHostLink,        // bytes over the host link
};

struct TermSpec {
  std::string_view name;  // key in the calibration file
  TermKind kind;
};

// The class that stands for a kind where no call is at hand: "attention/cudnn/forward/dense", "gemm", ...
const char* kernel_kind_name(KernelKind kind);
// The terms of a class, the per-call one first. Nothing if the name is not one of the above.
const std::vector<TermSpec>* terms_of_class(std::string_view kernel_class);
const std::vector<TermSpec>& kernel_terms(KernelKind kind);

using Terms = std::array<double, kMaxTerms>;
// Size of a call as integers, zero-filled: what decides calibrated, interpolated or extrapolated.
using SizeKey = std::array<std::int64_t, kKeyLength>;

// Everything the model needs to know of one call.
struct KernelCall {
  KernelKind kind = KernelKind::kGemm;
  Terms terms{};
  double memory_bytes = 0;  // least traffic: every operand once
  SizeKey key{};
};

KernelCall gemm_call(std::int64_t m, std::int64_t n, std::int64_t k, int multiprocessors);
// Output tiles of 128 x 256 that a GEMM's blocks work through: what its waves are made of when it shares the device.
std::int64_t gemm_tiles(std::int64_t m, std::int64_t n);

// What one launch of a library does with a list of pieces.
//   kDense         pieces of one size under one mask, or one piece: a batch
//   kRagged        whole sequences, all square causal or all full: a variable-length call
//   kRaggedOffset  variable-length under the bottom-right mask: some piece has more keys than queries
//   kPieces        any list, by kernels over piece lists (our own)
enum class AttentionForm { kDense, kRagged, kRaggedOffset, kPieces };
const char* form_name(AttentionForm form);  // "dense", "ragged", "ragged-offset", "pieces"

// How a library's kernels go over tiles, by its name; unknown libraries are taken for FlashAttention-like ones (a grid,
// masked tiles skipped).
struct AttentionLayout {
  ItemOrder order = ItemOrder::kGrid;
  bool pieces = false;          // one kernel for every list: kPieces
  bool skips_offset = true;     // the backward pass skips masked tiles under the bottom-right mask too
  bool key_head_items = false;  // backward items are key heads, each going through its query heads
};
AttentionLayout attention_layout(std::string_view library);
// The form that the list takes; cuDNN has no call for lists of several masks or other rules than causal and full, nor a
// backward call for pieces that share key rows (kernels/cudnn/attention_problem.h), which `one_call` says.
AttentionForm attention_form(const AttentionLayout& layout, const AttentionWork& work);
bool one_call(const AttentionLayout& layout, const AttentionWork& work, bool forward);
std::string attention_class(std::string_view library, bool forward, AttentionForm form);

KernelCall attention_call(const AttentionLayout& layout, bool forward, const AttentionWork& work, std::int64_t q_heads,
                          std::int64_t kv_heads, std::int64_t head_dim, int multiprocessors);
// What the time of the kernel of `function` (kernels/elementwise) follows beside a launch and its columns.
struct RowWork {
  double stretch = 1;  // of the bytes that a row must move
  double starts = 1;   // of a row
};
RowWork row_work(std::string_view function, std::int64_t columns);
// 0 x 0: not rows of a matrix, or not known.
KernelCall elementwise_call(Bytes read_and_written, std::string_view function = "", std::int64_t rows = 0,
                            std::int64_t columns = 0);
KernelCall copy_call(CopyKind kind, Bytes payload);

}  // namespace longhaul
