// What a kernel's time is made of: the terms of each kernel class, computed from shapes alone.
//
// A class's time is the sum over its terms of constant x term, at least its memory traffic over the bandwidth. The
// fitting tool and the model both call these functions, so they cannot drift apart. How a term scales to a device
// that was not measured is part of its definition (TermKind).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/cost/estimate.h"

namespace longhaul {

inline constexpr int kMaxTerms = 4;
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

// The three GEMM passes share one set of constants: nine backward rows cannot carry constants of their own, and their
// residuals under the common fit show no common sign.
const char* kernel_kind_name(KernelKind kind);  // "gemm", "attention-forward-dense", ...
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
// `forward` or backward; dense or ragged follows from the work.
KernelCall attention_call(bool forward, const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                          std::int64_t head_dim, int multiprocessors);
KernelCall elementwise_call(Bytes read_and_written);
KernelCall copy_call(CopyKind kind, Bytes payload);

}  // namespace longhaul
