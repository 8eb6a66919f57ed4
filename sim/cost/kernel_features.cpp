#include "sim/cost/kernel_features.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr std::int64_t kGemmTile = 128;       // output tile of one multiprocessor: 128 x 128
constexpr std::int64_t kPrologueSteps = 512;  // filling the k loop and writing the tile cost as much as so many k
constexpr std::int64_t kBurstRows = 512;      // see gemm_call
// Of the time of a tile of head dimension 128, the part that does not grow with the dimension is this to one: the
// exponentials of 128 x 128 pairs, 16 a clock, take 0.56 us where the two products of forward take 1.0 (H200).
constexpr double kExponentials = 0.62;
// Backward of a wider head takes key tiles of half as many rows: launches of few items take half as long as with whole
// tiles (calibrate.csv).
constexpr std::int64_t kWideParts = 2;
constexpr std::int64_t kBlockLogits = 32768;  // see row_work
constexpr std::int64_t kMostClusterBlocks = 8;
constexpr std::int64_t kMostRegisterColumns = 8192;

}  // namespace

const char* kernel_kind_name(KernelKind kind) {
  switch (kind) {
    case KernelKind::kGemm:
      return "gemm";
    case KernelKind::kAttentionForwardDense:
      return "attention/cudnn/forward/dense";
    case KernelKind::kAttentionBackwardDense:
      return "attention/cudnn/backward/dense";
    case KernelKind::kAttentionForwardRagged:
      return "attention/cudnn/forward/ragged";
    case KernelKind::kAttentionBackwardRagged:
      return "attention/cudnn/backward/ragged";
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

const std::vector<TermSpec>* terms_of_class(std::string_view kernel_class) {
  static const std::vector<TermSpec> gemm = {{"seconds_per_call", TermKind::kFixed},
                                             {"seconds_per_wave_and_k", TermKind::kMultiprocessor},
                                             {"seconds_per_flop", TermKind::kDevice},
                                             {"seconds_per_sustained_flop", TermKind::kDevice}};
  static const std::vector<TermSpec> attention = {{"seconds_per_call", TermKind::kFixed},
                                                  {"seconds_per_full_tile", TermKind::kMultiprocessor},
                                                  {"seconds_per_causal_tile", TermKind::kMultiprocessor},
                                                  {"seconds_per_offset_tile", TermKind::kMultiprocessor},
                                                  {"seconds_per_busy_tile", TermKind::kMultiprocessor},
                                                  {"seconds_per_idle_slot", TermKind::kMultiprocessor},
                                                  {"seconds_per_query_byte", TermKind::kMemory},
                                                  {"seconds_per_key_byte", TermKind::kMemory},
                                                  {"seconds_per_wide_tile", TermKind::kMultiprocessor}};
  static const std::vector<TermSpec> memory = {{"seconds_per_call", TermKind::kFixed},
                                               {"seconds_per_byte", TermKind::kMemory}};
  static const std::vector<TermSpec> rows = {{"seconds_per_call", TermKind::kFixed},
                                             {"seconds_per_byte", TermKind::kMemory},
                                             {"seconds_per_row", TermKind::kMultiprocessor},
                                             {"seconds_per_column", TermKind::kFixed}};
  static const std::vector<TermSpec> host = {{"seconds_per_call", TermKind::kFixed},
                                             {"seconds_per_byte", TermKind::kHostLink}};
  if (kernel_class == "gemm") return &gemm;
  if (kernel_class.starts_with("attention/")) return &attention;
  if (kernel_class == "elementwise") return &memory;
  if (kernel_class.starts_with("elementwise/")) return &rows;
  if (kernel_class == "copy-d2d") return &memory;
  if (kernel_class == "copy-h2d" || kernel_class == "copy-d2h") return &host;
  return nullptr;
}

const std::vector<TermSpec>& kernel_terms(KernelKind kind) { return *terms_of_class(kernel_kind_name(kind)); }

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

const char* form_name(AttentionForm form) {
  switch (form) {
    case AttentionForm::kDense:
      return "dense";
    case AttentionForm::kRagged:
      return "ragged";
    case AttentionForm::kRaggedOffset:
      return "ragged-offset";
    case AttentionForm::kPieces:
      return "pieces";
  }
  LH_ASSERT(false, "unknown attention form");
}

AttentionLayout attention_layout(std::string_view library) {
  if (library == "cudnn") return {ItemOrder::kGrid, false, false, false};
  if (library.starts_with("longhaul")) return {ItemOrder::kLongestFirst, true, true, true};
  return {ItemOrder::kGrid, false, true, false};
}

AttentionForm attention_form(const AttentionLayout& layout, const AttentionWork& work) {
  if (layout.pieces) return AttentionForm::kPieces;
  if (work.dense()) return AttentionForm::kDense;
  const PieceMask mask = work.mask();
  return mask == PieceMask::kFull || mask == PieceMask::kSquareCausal ? AttentionForm::kRagged
                                                                      : AttentionForm::kRaggedOffset;
}

bool one_call(const AttentionLayout& layout, const AttentionWork& work, bool forward) {
  return layout.pieces || (work.mask() != PieceMask::kOther && (forward || !work.shared_keys));
}

std::string attention_class(std::string_view library, bool forward, AttentionForm form) {
  return fmt::format("attention/{}/{}/{}", library, forward ? "forward" : "backward", form_name(form));
}

// The span of the launch (attention_span.h) goes to the term of its mask; all masks of a class share the others. Busy
// tiles: what all multiprocessors do together, by products alone. Where they are all busy the power limit lowers the
// clocks, where the launch has few items or a long end it does not: time is span x a + busy x b, as clocks fall from
// 1800 to 1500 MHz on an H200 with the share of multiprocessors that work. Wide tiles: head dimensions above 128 run at
// lower rates than their products say. Idle slots: a ragged grid has as many for every sequence as the longest one
// needs. Query bytes: Q of all heads, for the passes of backward over O, dO and dQ. Key bytes: K of all query heads,
// whose gradients are summed over each group.
KernelCall attention_call(const AttentionLayout& layout, bool forward, const AttentionWork& work, std::int64_t q_heads,
                          std::int64_t kv_heads, std::int64_t head_dim, int multiprocessors) {
  LH_ASSERT(work.pieces >= 1, "an attention launch has a piece");
  LH_ASSERT(kv_heads >= 1 && q_heads % kv_heads == 0 && head_dim >= 1, "attention with {} heads over {}, head_dim {}",
            q_heads, kv_heads, head_dim);
  const PieceMask mask = work.mask();
  AttentionItems items;
  items.forward = forward;
  items.order = layout.order;
  items.skips_masked = layout.skips_offset || mask == PieceMask::kSquareCausal;
  const bool groups = !forward && layout.key_head_items;
  items.heads = groups ? kv_heads : q_heads;
  items.tiles_a_tile = groups ? as_double(q_heads / kv_heads) : 1;
  const double wide = std::max(0.0, as_double(head_dim) / kMeasuredHeadDim - 1);
  if (wide > 0 && !forward && layout.order == ItemOrder::kGrid) {
    items.heads *= kWideParts;
    items.tiles_a_tile /= as_double(kWideParts);
  }
  const double width = (as_double(head_dim) / kMeasuredHeadDim + kExponentials) / (1 + kExponentials);
  const double span = attention_span(work, items, multiprocessors);
  const double heads = as_double(q_heads);
  const std::int64_t slots =
      forward ? work.most_q_tiles * work.pieces - work.q_tiles : work.most_k_tiles * work.pieces - work.k_tiles;

  KernelCall call;
  const bool dense = attention_form(layout, work) == AttentionForm::kDense;
  call.kind = forward ? (dense ? KernelKind::kAttentionForwardDense : KernelKind::kAttentionForwardRagged)
                      : (dense ? KernelKind::kAttentionBackwardDense : KernelKind::kAttentionBackwardRagged);
  call.terms[0] = 1;
  call.terms[mask == PieceMask::kFull ? 1 : mask == PieceMask::kSquareCausal ? 2 : 3] = width * span;
  call.terms[4] = as_double(head_dim) / kMeasuredHeadDim * visited_tiles(work, items) / multiprocessors;
  if (layout.order == ItemOrder::kGrid) call.terms[5] = heads * as_double(slots) / multiprocessors;
  if (!forward) {
    call.terms[6] = 2 * heads * as_double(head_dim) * as_double(work.q_rows);
    call.terms[7] = 2 * heads * as_double(head_dim) * as_double(work.k_rows);
  }
  call.terms[8] = wide * span;
  // bf16: Q and O, K and V; the backward also reads dO and writes dQ, dK, dV.
  const double passes = forward ? 2 : 4;
  call.memory_bytes =
      2 * as_double(head_dim) * passes * (heads * as_double(work.q_rows) + as_double(kv_heads * work.k_rows));
  call.key = {work.pieces, work.q_rows, work.k_rows, static_cast<std::int64_t>(work.pairs), q_heads, head_dim};
  return call;
}

// Cross-entropy (cross_entropy_cluster.cu): two blocks on a multiprocessor hold 512 x 64 logits each, a row has a
// cluster of 1, 2, 4 or 8, and a block takes as long however few of its logits the row fills: its bytes are the room
// that it takes, and no start beside. Longer rows are read twice and written once. Backward of RMSNorm (rms_norm.cu):
// up to 4,096 columns two blocks share a multiprocessor, up to 8,192 one has it alone and starts twice as many rows one
// after the other; longer rows of x and dy are read twice.
RowWork row_work(std::string_view function, std::int64_t columns) {
  if (columns < 1) return {};
  if (function == "cross_entropy_with_gradient") {
    if (columns > kMostClusterBlocks * kBlockLogits) return {3.0 / 2, 1};
    std::int64_t blocks = 1;
    while (blocks * kBlockLogits < columns) blocks *= 2;
    return {as_double(blocks * kBlockLogits) / as_double(columns), 0};
  }
  if (function == "rms_norm_backward") {
    if (columns > kMostRegisterColumns) return {5.0 / 3, 1};
    return {1, columns > kMostRegisterColumns / 2 ? 2.0 : 1.0};
  }
  return {};
}

// Rows cost their start beside their bytes (narrow rows are slower a byte); columns what every block does
// for each of them whatever the number of rows (angles of RoPE, partial sums of weight gradients).
KernelCall elementwise_call(Bytes read_and_written, std::string_view function, std::int64_t rows,
                            std::int64_t columns) {
  LH_ASSERT(read_and_written.value >= 0 && rows >= 0 && columns >= 0, "elementwise over {} bytes, {} x {}",
            read_and_written.value, rows, columns);
  KernelCall call;
  call.kind = KernelKind::kElementwise;
  const RowWork work = row_work(function, columns);
  call.terms = {1.0, as_double(read_and_written.value) * work.stretch, as_double(rows) * work.starts,
                as_double(columns)};
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
