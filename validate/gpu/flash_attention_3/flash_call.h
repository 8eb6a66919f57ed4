// One attention call of FlashAttention-3 on the current device, without PyTorch: operands, scratch, and what the
// library's functions put on a stream.
//
// Follows github Dao-AILab/flash-attention @0251105a, hopper/flash_api.cpp (mha_fwd, mha_bwd) as flash_attn_func and
// flash_attn_varlen_func call them by default: bf16, head dimension 128, one split, heads packed where
// hopper/heuristics.h says so, backward with atomics. Enqueued is all that reaches the GPU: forward, of variable
// lengths the scheduler's metadata and the main kernel, of a dense causal call a zeroed counter and the main kernel;
// backward, zeros for the sums of dK and dV where heads share keys, the row sums of dO x O (which also zero dQ's sums),
// the main kernel, and the roundings of dQ and, where heads share keys, of dK and dV. Zeros are memsets here, fill
// kernels of the same bytes there.
//
// Inputs are normal of deviation 1, rounded to bf16; the same case has the same ones.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "kernels/common/bf16.h"
#include "validate/gpu/flash_attention_3/cases.h"

namespace longhaul {

inline constexpr int kFlashHeadDim = 128;
// build.sh, LAYOUTS.
#ifdef LONGHAUL_VARLEN_ONLY
inline constexpr bool kRunsDense = false;
#else
inline constexpr bool kRunsDense = true;
#endif

// Rows of tokens, each heads x kFlashHeadDim; Q, O, dO, dQ of query heads, the others of key heads.
struct AttentionValues {
  std::vector<Bf16> q, k, v, o, d_o, d_q, d_k, d_v;
};

class FlashCall {
 public:
  // Inputs and, for a backward pass, the forward pass's results are enqueued on `stream`. Throws CudaError,
  // std::invalid_argument for a dense case where kRunsDense is false.
  FlashCall(const AttentionCase& one, cudaStream_t stream);
  ~FlashCall();
  FlashCall(const FlashCall&) = delete;
  FlashCall& operator=(const FlashCall&) = delete;

  // The pass of the case. A fault of a launch ends the process with status 1: the library's own checks do that.
  void enqueue();
  // Whether query heads of a key head share tiles in the forward pass.
  bool packs_heads() const;
  // Waits for the stream. The gradients are empty of a forward pass.
  AttentionValues download() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
