// The graphs of attention forward and backward that cuDNN's fused engines recognise.
//
// Composed of matrix products, pointwise operations and reductions: the unified operation of these versions takes no
// mask forward and does not build backward (seen with cuDNN 9.14 and 9.19 on an H200, 2026-11-29). The engines match
// the pattern, so order and types of the operations are part of the interface; they follow what NVIDIA's cudnn-frontend
// (composite nodes of its scaled_dot_product_flash_attention) expands to.
#pragma once

#include <cstdint>

#include "kernels/cudnn/attention_problem.h"
#include "kernels/cudnn/graph.h"

namespace longhaul {

// One plan serves all calls of a shape. Ragged: `batch` sequences of at most max_q x max_k, packed; dense: exactly so.
struct AttentionGraphShape {
  std::int64_t batch = 0, max_q = 0, max_k = 0;
  std::int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  CudnnMask mask = CudnnMask::kFull;
  bool ragged = false;
  bool deterministic = false;
  auto operator<=>(const AttentionGraphShape&) const = default;
};

// Ids of the tensors that a call must point at; 0 where the graph has none. Offsets count elements: of query rows
// (q, o and their gradients), of key rows, of log-sum-exp rows.
struct AttentionGraphTensors {
  CudnnTensor q = 0, k = 0, v = 0, o = 0, lse = 0;
  CudnnTensor q_offsets = 0, k_offsets = 0, lse_offsets = 0, q_lengths = 0, k_lengths = 0;
  CudnnTensor d_o = 0, d_q = 0, d_k = 0, d_v = 0;
  // Scratch. Rows of q x q_heads fp32; rows of q x q_heads x head_dim fp32; rows of k x q_heads x head_dim bf16.
  CudnnTensor row_sums = 0, d_q_sum = 0, d_k_heads = 0, d_v_heads = 0;
};

AttentionGraphTensors add_forward(CudnnGraph& graph, const AttentionGraphShape& shape);
AttentionGraphTensors add_backward(CudnnGraph& graph, const AttentionGraphShape& shape);

}  // namespace longhaul
