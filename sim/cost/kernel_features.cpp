#include "sim/cost/kernel_features.h"

#include <algorithm>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr std::int64_t kGemmTile = 128;       // output tile of one multiprocessor: 128 x 128
constexpr std::int64_t kPrologueSteps = 512;  // filling the k loop and writing the tile cost as much as so many k
constexpr std::int64_t kBurstRows = 512;      // see gemm_call
constexpr double kMeasuredHeadDim = 128;      // all attention rows have head_dim 128; work is proportional to it

double as_double(std::int64_t value) { return static_cast<double>(value); }
std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

const char* kernel_kind_name(KernelKind kind) {
  switch (kind) {
    case KernelKind::kGemm:
      return "gemm";
    case KernelKind::kAttentionForwardDense:
      return "attention-forward-dense";
    case KernelKind::kAttentionBackwardDense:
      return "attention-backward-dense";
    case KernelKind::kAttentionForwardRagged:
      return "attention-forward-ragged";
    case KernelKind::kAttentionBackwardRagged:
      return "attention-backward-ragged";
    case KernelKind::kElementwise:
      return "elementwise";
    case KernelKind::kCopyDeviceToDevice:
      return "copy-d2d";
    case KernelKind::kCopyHostToDevice:
      return "copy-h2d";
    case KernelKind::kCopyDeviceToHost:
      return "copy-d2h";
  }
  LH_ASSERT(false, "unknown kernel kind");
}

const std::vector<TermSpec>& kernel_terms(KernelKind kind) {
  static const std::vector<TermSpec> gemm = {{"seconds_per_call", TermKind::kFixed},
                                             {"seconds_per_wave_and_k", TermKind::kMultiprocessor},
                                             {"seconds_per_flop", TermKind::kDevice},
                                             {"seconds_per_sustained_flop", TermKind::kDevice}};
  static const std::vector<TermSpec> dense = {{"seconds_per_call", TermKind::kFixed},
                                              {"seconds_per_pair_of_multiprocessor", TermKind::kMultiprocessor}};
  static const std::vector<TermSpec> ragged = {{"seconds_per_call", TermKind::kFixed},
                                               {"seconds_per_pair_of_multiprocessor", TermKind::kMultiprocessor},
                                               {"seconds_per_query_tile", TermKind::kMultiprocessor},
                                               {"seconds_per_key_tile", TermKind::kMultiprocessor}};
  static const std::vector<TermSpec> memory = {{"seconds_per_call", TermKind::kFixed},
                                               {"seconds_per_byte", TermKind::kMemory}};
  static const std::vector<TermSpec> host = {{"seconds_per_call", TermKind::kFixed},
                                             {"seconds_per_byte", TermKind::kHostLink}};
  switch (kind) {
    case KernelKind::kGemm:
      return gemm;
    case KernelKind::kAttentionForwardDense:
    case KernelKind::kAttentionBackwardDense:
      return dense;
    case KernelKind::kAttentionForwardRagged:
    case KernelKind::kAttentionBackwardRagged:
      return ragged;
    case KernelKind::kElementwise:
    case KernelKind::kCopyDeviceToDevice:
      return memory;
    case KernelKind::kCopyHostToDevice:
    case KernelKind::kCopyDeviceToHost:
      return host;
  }
  LH_ASSERT(false, "unknown kernel kind");
}

// Terms: tiles of 128 x 128 run in waves over the multiprocessors; a wave costs its k loop plus its prologue (0, 256
// and 512 steps were tried; 512 has the least leave-one-out error). FLOPs carry the part that does not quantise: cuBLAS
// picks among tile shapes, split-K and stream-K. Rows above kBurstRows carry a further term: in the table, calls of 512
// rows run about 10 % faster than calls of equal FLOPs and more rows. Short bursts before the clock settles would
// explain it; the rows cannot tell (docs/accuracy-log.md).
KernelCall gemm_call(std::int64_t m, std::int64_t n, std::int64_t k, int multiprocessors) {
  LH_ASSERT(m >= 1 && n >= 1 && k >= 1, "GEMM of {} x {} x {}", m, n, k);
  const double waves = as_double(ceil_div(ceil_div(m, kGemmTile) * ceil_div(n, kGemmTile), multiprocessors));
  const double output = as_double(m) * as_double(n);
  KernelCall call;
  call.kind = KernelKind::kGemm;
  call.terms = {1.0, waves * as_double(k + kPrologueSteps), 2 * output * as_double(k),
                2 * as_double(std::max<std::int64_t>(m - kBurstRows, 0)) * as_double(n) * as_double(k)};
  call.memory_bytes = 2 * (output + (as_double(m) + as_double(n)) * as_double(k));
  call.key = {m, n, k, 0, 0, 0};
  return call;
}

std::int64_t gemm_tiles(std::int64_t m, std::int64_t n) { return ceil_div(m, kGemmTile) * ceil_div(n, 2 * kGemmTile); }

// Work items are the query tiles (forward) or key tiles (backward) of all heads, in waves over the multiprocessors, an
// item costing the pairs of the mean tile. A dense call adds its tail: the longest tile beyond the mean one. The items
// of a ragged call are many and of all lengths, so its pieces share one tail inside the rounding up to waves; instead
// it pays for every query and key tile (loading, masking, the cast of accumulators).
KernelCall attention_call(bool forward, const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                          std::int64_t head_dim, int multiprocessors) {
  LH_ASSERT(work.pieces >= 1, "an attention launch has a piece");
  LH_ASSERT(kv_heads >= 1 && q_heads % kv_heads == 0 && head_dim >= 1, "attention with {} heads over {}, head_dim {}",
            q_heads, kv_heads, head_dim);
  const bool dense = work.dense();
  const double width = as_double(head_dim) / kMeasuredHeadDim;
  const double heads = as_double(q_heads);
  const double processors = multiprocessors;
  const std::int64_t items = forward ? work.q_tiles : work.k_tiles;
  const double pairs = forward ? work.forward_pairs : (dense ? work.backward_pairs : work.unskipped_pairs);
  const double mean = pairs / as_double(items);
  const double longest = forward ? work.longest_forward_tile : work.longest_backward_tile;
  const double waves = as_double(ceil_div(q_heads * items, multiprocessors));

  KernelCall call;
  if (dense) {
    call.kind = forward ? KernelKind::kAttentionForwardDense : KernelKind::kAttentionBackwardDense;
    call.terms = {1.0, width * (waves * mean + std::max(longest - mean, 0.0))};
  } else {
    call.kind = forward ? KernelKind::kAttentionForwardRagged : KernelKind::kAttentionBackwardRagged;
    call.terms = {1.0, width * waves * mean, width * heads * as_double(work.q_tiles) / processors,
                  width * heads * as_double(work.k_tiles) / processors};
  }
  // bf16: Q and O, K and V; the backward also reads dO and writes dQ, dK, dV.
  const double q_passes = forward ? 2 : 4;
  const double k_passes = forward ? 2 : 4;
  call.memory_bytes = 2 * as_double(head_dim) *
                      (q_passes * heads * as_double(work.q_rows) + k_passes * as_double(kv_heads * work.k_rows));
  call.key = {work.pieces, work.q_rows, work.k_rows, static_cast<std::int64_t>(work.pairs), q_heads, head_dim};
  return call;
}

KernelCall elementwise_call(Bytes read_and_written) {
  LH_ASSERT(read_and_written.value >= 0, "elementwise over {} bytes", read_and_written.value);
  KernelCall call;
  call.kind = KernelKind::kElementwise;
  call.terms = {1.0, as_double(read_and_written.value)};
  call.key = {read_and_written.value};
  return call;
}

KernelCall copy_call(CopyKind kind, Bytes payload) {
  LH_ASSERT(payload.value >= 0, "copy of {} bytes", payload.value);
  KernelCall call;
  const bool inside = kind == CopyKind::kDeviceToDevice;
  call.kind = inside
                  ? KernelKind::kCopyDeviceToDevice
                  : (kind == CopyKind::kHostToDevice ? KernelKind::kCopyHostToDevice : KernelKind::kCopyDeviceToHost);
  call.terms = {1.0, as_double(payload.value) * (inside ? 2 : 1)};
  call.key = {payload.value};
  return call;
}

}  // namespace longhaul
