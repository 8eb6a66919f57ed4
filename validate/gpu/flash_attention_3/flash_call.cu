#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

// clang-format off: heuristics.h needs <algorithm> before it
#include <flash.h>
#include <heuristics.h>
#include <tile_size.h>
// clang-format on

#include "kernels/common/check.h"
#include "kernels/common/device_buffer.h"
#include "validate/gpu/flash_attention_3/flash_call.h"

// Declared as cutlass/bfloat16.h does; its whole header is not needed for a name.
namespace cutlass {
struct bfloat16_t;
}

namespace longhaul {
namespace {

constexpr int kDim = kFlashHeadDim;
constexpr int kForwardRounding = 128;
constexpr int kMostBatchesOfOneBlock = 992;  // PREPARE_VARLEN_MAX_BATCHES_1CTA
// Tiles of the backward pass at this head dimension; flash_bwd_launch_template.h has the same numbers.
constexpr int kBackwardRowsCausal = 64, kBackwardRowsFull = 80, kBackwardKeys = 128;

__device__ unsigned long long mixed(unsigned long long x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Box and Muller's method, the cosine alone.
__global__ void normal_kernel(__nv_bfloat16* data, std::size_t count, unsigned seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const unsigned long long bits = mixed(i + 0x9E3779B97F4A7C15ULL * (seed + 1ULL));
    const float u = (static_cast<float>(bits >> 40) + 1.0F) * 0x1p-24F;  // (0, 1]
    const float angle = static_cast<float>((bits >> 8) & 0xFFFFFFU) * 0x1p-23F;
    data[i] = __float2bfloat16_rn(sqrtf(-2.0F * logf(u)) * cospif(angle));
  }
}

std::int64_t round_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by * by; }

int attribute(cudaDeviceAttr what) {
  int device = 0, value = 0;
  LH_CUDA_CHECK(cudaGetDevice(&device));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&value, what, device));
  return value;
}

std::vector<int> cumulative(const AttentionCase& one, std::int64_t AttentionEntry::*length) {
  std::vector<int> ends = {0};
  for (const AttentionEntry& entry : one.entries) {
    for (std::int64_t i = 0; i < entry.count; ++i) ends.push_back(ends.back() + static_cast<int>(entry.*length));
  }
  return ends;
}

// Zeros may be allocated, nothing is: a buffer of no elements has no pointer.
using Floats = DeviceBuffer<float>;
using Ints = DeviceBuffer<int>;

struct BackwardScratch {
  Floats row_sum, lse_log2, d_q, d_k, d_v;
  Ints semaphore;
};

}  // namespace

struct FlashCall::State {
  AttentionCase one;
  cudaStream_t stream;
  DeviceBuffer<Bf16> q, k, v, o, d_o, d_q, d_k, d_v;
  Floats lse;
  Ints q_ends, k_ends, metadata;
  std::optional<BackwardScratch> scratch;
  Flash_fwd_params forward = {};
  Flash_bwd_params backward = {};

  State(const AttentionCase& the_case, cudaStream_t the_stream)
      : one(the_case),
        stream(the_stream),
        q(q_elements()),
        k(k_elements()),
        v(k_elements()),
        o(q_elements()),
        d_o(one.backward ? q_elements() : 0),
        d_q(one.backward ? q_elements() : 0),
        d_k(one.backward ? k_elements() : 0),
        d_v(one.backward ? k_elements() : 0),
        lse(static_cast<std::size_t>(one.total_queries() * one.q_heads)),
        q_ends(one.dense ? 0 : static_cast<std::size_t>(one.pieces() + 1)),
        k_ends(one.dense ? 0 : static_cast<std::size_t>(one.pieces() + 1)),
        metadata(metadata_size()) {
    unsigned seed = 0;
    for (DeviceBuffer<Bf16>* input : {&q, &k, &v, &d_o}) fill(*input, seed++);
    for (DeviceBuffer<Bf16>* result : {&o, &d_q, &d_k, &d_v}) result->poison(stream);
    if (!one.dense) {
      q_ends.upload(cumulative(one, &AttentionEntry::queries), stream);
      k_ends.upload(cumulative(one, &AttentionEntry::keys), stream);
    }
    set_forward();
    if (!one.backward) return;
    run_forward();
    set_backward();
  }

  std::size_t q_elements() const { return static_cast<std::size_t>(one.total_queries() * one.q_heads * kDim); }
  std::size_t k_elements() const { return static_cast<std::size_t>(one.total_keys() * one.kv_heads * kDim); }
  bool grouped() const { return one.q_heads != one.kv_heads; }
  bool causal_forward() const { return one.causal && one.longest_queries() != 1; }  // one query sees all keys
  std::int64_t rounded_batch() const { return round_up(one.pieces(), 4); }
  std::int64_t metadata_vectors() const { return one.dense ? 0 : causal_forward() ? 4 : 3; }
  bool counts_tiles() const { return causal_forward() || !one.dense; }
  std::size_t metadata_size() const {
    if (!counts_tiles()) return 0;
    const std::int64_t vectors = one.dense && causal_forward() ? 2 : metadata_vectors();
    return static_cast<std::size_t>(rounded_batch() * vectors + 1);
  }

  void fill(DeviceBuffer<Bf16>& buffer, unsigned seed) {
    if (buffer.size() == 0) return;
    normal_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<__nv_bfloat16*>(buffer.data()), buffer.size(), seed);
    LH_CUDA_CHECK(cudaGetLastError());
  }

  void set_common(Flash_fwd_params& params, bool causal, std::int64_t q_rounding, std::int64_t k_rounding);
  void set_metadata();
  void set_forward();
  void set_backward();
  void run_forward();
  void run_backward();
};

// set_params_fprop, and what both functions set after it.
void FlashCall::State::set_common(Flash_fwd_params& params, bool causal, std::int64_t q_rounding,
                                  std::int64_t k_rounding) {
  const std::int64_t q_row = std::int64_t{one.q_heads} * kDim, k_row = std::int64_t{one.kv_heads} * kDim;
  params.is_bf16 = true;
  params.q_ptr = q.data();
  params.k_ptr = k.data();
  params.v_ptr = v.data();
  params.o_ptr = o.data();
  params.softmax_lse_ptr = lse.data();
  params.q_row_stride = params.o_row_stride = q_row;
  params.k_row_stride = params.v_row_stride = k_row;
  params.q_head_stride = params.k_head_stride = params.v_head_stride = params.o_head_stride = kDim;
  params.v_dim_stride = 1;
  if (one.dense) {
    params.q_batch_stride = params.o_batch_stride = one.entries[0].queries * q_row;
    params.k_batch_stride = params.v_batch_stride = one.entries[0].keys * k_row;
  } else {
    params.cu_seqlens_q = q_ends.data();
    params.cu_seqlens_k = k_ends.data();
  }
  params.b = params.b_k = static_cast<int>(one.pieces());
  params.h = one.q_heads;
  params.h_k = one.kv_heads;
  params.seqlen_q = static_cast<int>(one.longest_queries());
  params.seqlen_k = static_cast<int>(one.longest_keys());
  params.seqlen_q_rounded = static_cast<int>(round_up(params.seqlen_q, q_rounding));
  params.seqlen_k_rounded = static_cast<int>(round_up(params.seqlen_k, k_rounding));
  params.total_q = static_cast<int>(one.total_queries());
  params.total_k = static_cast<int>(one.total_keys());
  params.d = params.d_rounded = params.dv = params.dv_rounded = kDim;
  params.scale_softmax = static_cast<float>(1.0 / std::sqrt(static_cast<double>(kDim)));
  params.p_dropout = 1;
  params.rp_dropout = 1;
  params.p_dropout_in_uint8_t = 255;
  params.is_causal = causal;
  params.window_size_left = params.seqlen_k - 1;
  params.window_size_right = causal ? 0 : params.seqlen_q - 1;
  params.arch = 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
  params.num_sm = attribute(cudaDevAttrMultiProcessorCount);
}

// One array: splits, query tiles and batch of a place, where causal the heads that stay in the L2, then the counter.
void FlashCall::State::set_metadata() {
  forward.varlen_sort_batches = true;
  forward.head_swizzle = forward.is_causal;
  if (!counts_tiles()) return;
  int* const base = metadata.data();
  const std::int64_t batch = rounded_batch();
  if (!one.dense) {
    forward.num_splits_dynamic_ptr = base;
    forward.num_m_blocks_ptr = base + batch;
    forward.varlen_batch_idx_ptr = base + 2 * batch;
    forward.num_nheads_in_l2_ptr = forward.head_swizzle ? base + 3 * batch : nullptr;
  }
  forward.tile_count_semaphore_offset = static_cast<int>(metadata.size() - 1);
  forward.tile_count_semaphore = base + forward.tile_count_semaphore_offset;
}

void FlashCall::State::set_forward() {
  set_common(forward, causal_forward(), kForwardRounding, kForwardRounding);
  forward.page_size = 1;
  forward.num_splits = 1;
  forward.prepare_varlen_pdl = !one.dense && forward.b <= kMostBatchesOfOneBlock;
  const int tile_rows = std::get<0>(tile_size_fwd_sm90(kDim, kDim, forward.is_causal, false));
  forward.pack_gqa = grouped() && should_pack_gqa(!one.dense, forward.seqlen_q, one.q_heads / one.kv_heads, tile_rows);
  set_metadata();
}

void FlashCall::State::set_backward() {
  const std::int64_t tile_rows = one.causal ? kBackwardRowsCausal : kBackwardRowsFull;
  set_common(backward, one.causal, tile_rows, kBackwardKeys);
  const std::int64_t batch = one.pieces();
  const std::int64_t q_rows =
      one.dense ? batch * backward.seqlen_q_rounded : round_up(one.total_queries() + batch * tile_rows, tile_rows);
  const std::int64_t k_rows =
      one.dense ? batch * backward.seqlen_k_rounded : round_up(one.total_keys() + batch * kBackwardKeys, kBackwardKeys);
  const auto elements = [](std::int64_t rows, std::int64_t width) { return static_cast<std::size_t>(rows * width); };
  const std::size_t sums = grouped() ? elements(k_rows, std::int64_t{one.kv_heads} * kDim) : 0;
  scratch = BackwardScratch{Floats(elements(q_rows, one.q_heads)),
                            Floats(elements(q_rows, one.q_heads)),
                            Floats(elements(q_rows, std::int64_t{one.q_heads} * kDim)),
                            Floats(sums),
                            Floats(sums),
                            Ints(elements(round_up(backward.seqlen_q, tile_rows) / tile_rows * batch, one.q_heads))};
  const std::int64_t q_row = backward.q_row_stride, k_row = backward.k_row_stride;
  backward.do_ptr = d_o.data();
  backward.dq_ptr = d_q.data();
  backward.dk_ptr = d_k.data();
  backward.dv_ptr = d_v.data();
  backward.do_row_stride = backward.dq_row_stride = q_row;
  backward.dk_row_stride = backward.dv_row_stride = k_row;
  backward.do_head_stride = backward.dq_head_stride = backward.dk_head_stride = backward.dv_head_stride = kDim;
  if (one.dense) {
    backward.do_batch_stride = backward.dq_batch_stride = backward.q_batch_stride;
    backward.dk_batch_stride = backward.dv_batch_stride = backward.k_batch_stride;
  }
  backward.dq_accum_ptr = scratch->d_q.data();
  backward.dk_accum_ptr = scratch->d_k.data();
  backward.dv_accum_ptr = scratch->d_v.data();
  backward.dsoftmax_sum = scratch->row_sum.data();
  backward.softmax_lse_log2_ptr = scratch->lse_log2.data();
  backward.dq_semaphore = scratch->semaphore.data();
  backward.deterministic = false;
}

void FlashCall::State::run_forward() {
  if (one.dense && counts_tiles()) {
    LH_CUDA_CHECK(cudaMemsetAsync(metadata.data(), 0, metadata.size_bytes(), stream));
  }
  if (forward.pack_gqa) {
    run_mha_fwd_<90, cutlass::bfloat16_t, kDim, kDim, false, false, false, true>(forward, stream);
  } else {
    run_mha_fwd_<90, cutlass::bfloat16_t, kDim, kDim, false, false, false, false>(forward, stream);
  }
}

void FlashCall::State::run_backward() {
  for (Floats* sums : {&scratch->d_k, &scratch->d_v}) {
    if (sums->size() > 0) LH_CUDA_CHECK(cudaMemsetAsync(sums->data(), 0, sums->size_bytes(), stream));
  }
  run_mha_bwd_<90, cutlass::bfloat16_t, kDim, false>(backward, stream);
}

FlashCall::FlashCall(const AttentionCase& one, cudaStream_t stream) {
  if (one.dense && !kRunsDense) throw std::invalid_argument(one.name + " is dense; this was built for varlen alone");
  state_ = std::make_unique<State>(one, stream);
}
FlashCall::~FlashCall() = default;

void FlashCall::enqueue() { state_->one.backward ? state_->run_backward() : state_->run_forward(); }

bool FlashCall::packs_heads() const { return state_->forward.pack_gqa; }

AttentionValues FlashCall::download() const {
  const State& s = *state_;
  const auto host = [&](const DeviceBuffer<Bf16>& buffer) { return buffer.download(s.stream); };
  return {host(s.q), host(s.k), host(s.v), host(s.o), host(s.d_o), host(s.d_q), host(s.d_k), host(s.d_v)};
}

}  // namespace longhaul
