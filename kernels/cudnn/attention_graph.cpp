#include "kernels/cudnn/attention_graph.h"

#include <cmath>
#include <limits>
#include <utility>

namespace longhaul {
namespace {

constexpr cudnnDataType_t kBf16 = CUDNN_DATA_BFLOAT16;
constexpr cudnnDataType_t kFp32 = CUDNN_DATA_FLOAT;
constexpr cudnnDataType_t kInt32 = CUDNN_DATA_INT32;
constexpr cudnnDataType_t kBool = CUDNN_DATA_BOOLEAN;

class Builder {
 public:
  Builder(CudnnGraph& graph, const AttentionGraphShape& shape) : graph_(graph), shape_(shape) {}

  AttentionGraphTensors forward();
  AttentionGraphTensors backward();

 private:
  Dims rows(std::int64_t heads, std::int64_t count, std::int64_t width) const {
    return {shape_.batch, heads, count, width};
  }
  // Strides of token rows: rows x heads x width.
  static Dims row_strides(std::int64_t heads, std::int64_t count, std::int64_t width) {
    return {count * heads * width, width, heads * width, 1};
  }
  CudnnTensor token_rows(std::int64_t heads, std::int64_t count, std::int64_t width, cudnnDataType_t type,
                         CudnnTensor offsets) {
    return graph_.tensor({rows(heads, count, width), row_strides(heads, count, width), type, false, offsets});
  }
  // The same seen with the last two dimensions exchanged.
  CudnnTensor transposed_rows(std::int64_t heads, std::int64_t count, std::int64_t width, CudnnTensor offsets) {
    Dims dims = rows(heads, count, width);
    Dims strides = row_strides(heads, count, width);
    std::swap(dims[2], dims[3]);
    std::swap(strides[2], strides[3]);
    return graph_.tensor({dims, strides, kBf16, false, offsets});
  }
  // Queries x keys, inside the kernel.
  CudnnTensor scores(cudnnDataType_t type) {
    const std::int64_t q = shape_.max_q, k = shape_.max_k, h = shape_.q_heads;
    return graph_.tensor({rows(h, q, k), {h * q * k, q * k, k, 1}, type, true, 0});
  }
  CudnnTensor transposed_scores() {
    const std::int64_t q = shape_.max_q, k = shape_.max_k, h = shape_.q_heads;
    return graph_.tensor({rows(h, k, q), {h * q * k, q * k, 1, k}, kBf16, true, 0});
  }
  // One number a query, inside the kernel.
  CudnnTensor column() {
    const std::int64_t q = shape_.max_q, h = shape_.q_heads;
    return graph_.tensor({rows(h, q, 1), {h * q, q, 1, 1}, kFp32, true, 0});
  }

  void add_inputs();
  CudnnTensor masked(CudnnTensor s, CudnnTensor keep);
  CudnnTensor pad(CudnnTensor s);
  CudnnTensor causal(CudnnTensor s);
  CudnnTensor scaled_scores(CudnnTensor scale);
  CudnnTensor row_sums();
  // Product of transposed scores with query rows, summed over the heads that share a key head.
  void key_gradient(CudnnTensor scores_t, CudnnTensor query_rows, CudnnTensor& all_heads, CudnnTensor& result);
  void query_gradient(CudnnTensor d_s);

  CudnnGraph& graph_;
  const AttentionGraphShape& shape_;
  AttentionGraphTensors t_;
};

void Builder::add_inputs() {
  const auto& s = shape_;
  if (s.ragged) {
    const auto offsets = [&] {
      return graph_.tensor({{s.batch + 1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_INT64, false, 0});
    };
    const auto lengths = [&] { return graph_.tensor({{s.batch, 1, 1, 1}, {1, 1, 1, 1}, kInt32, false, 0}); };
    t_.q_offsets = offsets();
    t_.k_offsets = offsets();
    t_.lse_offsets = offsets();
    t_.q_lengths = lengths();
    t_.k_lengths = lengths();
  }
  t_.q = token_rows(s.q_heads, s.max_q, s.head_dim, kBf16, t_.q_offsets);
  t_.k = transposed_rows(s.kv_heads, s.max_k, s.head_dim, t_.k_offsets);
  t_.o = token_rows(s.q_heads, s.max_q, s.head_dim, kBf16, t_.q_offsets);
  t_.lse = token_rows(s.q_heads, s.max_q, 1, kFp32, t_.lse_offsets);
}

CudnnTensor Builder::masked(CudnnTensor s, CudnnTensor keep) {
  // Versions before 9.10 want the largest negative number in place of minus infinity.
  const float lowest =
      cudnnGetVersion() >= 91000 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::lowest();
  const CudnnTensor result = scores(kFp32);
  graph_.select(s, graph_.constant(lowest), keep, result);
  return result;
}

// Keeps row < q length and column < k length.
CudnnTensor Builder::pad(CudnnTensor s) {
  if (!shape_.ragged) return s;
  const CudnnTensor row = scores(kInt32), column = scores(kInt32);
  const CudnnTensor row_in = scores(kBool), column_in = scores(kBool), keep = scores(kBool);
  graph_.index(2, s, row, kInt32);
  graph_.index(3, s, column, kInt32);
  graph_.pointwise(CUDNN_POINTWISE_CMP_LT, row, t_.q_lengths, row_in, kBool);
  graph_.pointwise(CUDNN_POINTWISE_CMP_LT, column, t_.k_lengths, column_in, kBool);
  graph_.pointwise(CUDNN_POINTWISE_LOGICAL_AND, row_in, column_in, keep, kBool);
  return masked(s, keep);
}

// Keeps column <= row (+ k length - q length).
CudnnTensor Builder::causal(CudnnTensor s) {
  if (shape_.mask == CudnnMask::kFull) return s;
  CudnnTensor row = scores(kInt32);
  const CudnnTensor column = scores(kInt32), keep = scores(kBool);
  graph_.index(2, s, row, kFp32);
  graph_.index(3, s, column, kFp32);
  if (shape_.mask == CudnnMask::kCausalBottomRight) {
    const CudnnTensor keys = shape_.ragged ? t_.k_lengths : graph_.constant(static_cast<std::int32_t>(shape_.max_k));
    const CudnnTensor queries = shape_.ragged ? t_.q_lengths : graph_.constant(static_cast<std::int32_t>(shape_.max_q));
    const CudnnTensor added = scores(kInt32), shifted = scores(kInt32);
    graph_.pointwise(CUDNN_POINTWISE_ADD, row, keys, added, kInt32);
    graph_.pointwise(CUDNN_POINTWISE_SUB, added, queries, shifted, kInt32);
    row = shifted;
  }
  graph_.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, keep, kBool);
  return masked(s, keep);
}

// Q K^T scale.
CudnnTensor Builder::scaled_scores(CudnnTensor scale) {
  const CudnnTensor raw = scores(kFp32), scaled = scores(kFp32);
  graph_.matmul(t_.q, t_.k, raw, {t_.q_lengths, t_.k_lengths, 0});
  graph_.pointwise(CUDNN_POINTWISE_MUL, raw, scale, scaled);
  return scaled;
}

float scale_of(const AttentionGraphShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

AttentionGraphTensors Builder::forward() {
  add_inputs();
  t_.v = token_rows(shape_.kv_heads, shape_.max_k, shape_.head_dim, kBf16, t_.k_offsets);
  const CudnnTensor s = causal(pad(scaled_scores(graph_.constant(scale_of(shape_)))));
  const CudnnTensor top = column(), sum = column(), log_sum = column();
  const CudnnTensor below_top = scores(kFp32), weight = scores(kFp32), p = scores(kBf16);
  graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, s, top);
  graph_.pointwise(CUDNN_POINTWISE_SUB, s, top, below_top);
  graph_.pointwise(CUDNN_POINTWISE_EXP, below_top, 0, weight);
  graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, weight, sum);
  graph_.pointwise(CUDNN_POINTWISE_LOG, sum, 0, log_sum);
  graph_.pointwise(CUDNN_POINTWISE_ADD, top, log_sum, t_.lse);
  graph_.pointwise(CUDNN_POINTWISE_DIV, weight, sum, p);
  graph_.matmul(p, t_.v, t_.o, {t_.q_lengths, 0, t_.k_lengths});
  return t_;
}

// Sum over a query's row of dO O, kept in memory.
CudnnTensor Builder::row_sums() {
  const auto& s = shape_;
  const CudnnTensor product =
      graph_.tensor({rows(s.q_heads, s.max_q, s.head_dim),
                     {s.q_heads * s.max_q * s.head_dim, s.max_q * s.head_dim, s.q_heads * s.head_dim, 1},
                     kFp32,
                     true,
                     0});
  const CudnnTensor sum = column();
  t_.row_sums = token_rows(s.q_heads, s.max_q, 1, kFp32, t_.lse_offsets);
  graph_.pointwise(CUDNN_POINTWISE_MUL, t_.d_o, t_.o, product);
  graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
  graph_.pointwise(CUDNN_POINTWISE_MUL, sum, graph_.constant(1.0F), t_.row_sums);
  return t_.row_sums;
}

void Builder::key_gradient(CudnnTensor scores_t, CudnnTensor query_rows, CudnnTensor& all_heads, CudnnTensor& result) {
  const auto& s = shape_;
  const MatmulSizes sizes{t_.k_lengths, 0, t_.q_lengths};
  result = token_rows(s.kv_heads, s.max_k, s.head_dim, kBf16, t_.k_offsets);
  if (s.q_heads == s.kv_heads) {
    graph_.matmul(scores_t, query_rows, result, sizes);
    return;
  }
  if (s.ragged) {
    // The engine scales the offsets by the ratio of heads itself.
    all_heads = token_rows(s.q_heads, s.max_k, s.head_dim, kBf16, t_.k_offsets);
    graph_.matmul(scores_t, query_rows, all_heads, sizes);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, all_heads, result);
    return;
  }
  const CudnnTensor inside = graph_.tensor({rows(s.q_heads, s.max_k, s.head_dim),
                                            {s.q_heads * s.max_k * s.head_dim, s.max_k * s.head_dim, s.head_dim, 1},
                                            kBf16,
                                            true,
                                            0});
  graph_.matmul(scores_t, query_rows, inside, sizes);
  graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, inside, result);
}

void Builder::query_gradient(CudnnTensor d_s) {
  const auto& s = shape_;
  const MatmulSizes sizes{t_.q_lengths, 0, t_.k_lengths};
  const CudnnTensor k = graph_.tensor(
      {rows(s.kv_heads, s.max_k, s.head_dim), row_strides(s.kv_heads, s.max_k, s.head_dim), kBf16, true, t_.k_offsets});
  graph_.reshape(t_.k, k);
  t_.d_q = token_rows(s.q_heads, s.max_q, s.head_dim, kBf16, t_.q_offsets);
  if (s.deterministic) {
    graph_.matmul(d_s, k, t_.d_q, sizes);
    return;
  }
  t_.d_q_sum = s.ragged ? token_rows(s.q_heads, s.max_q, s.head_dim, kFp32, t_.q_offsets)
                        : graph_.tensor({rows(s.q_heads, s.max_q, s.head_dim),
                                         {s.q_heads * s.max_q * s.head_dim, s.max_q * s.head_dim, s.head_dim, 1},
                                         kFp32,
                                         false,
                                         0});
  graph_.matmul(d_s, k, t_.d_q_sum, sizes);
  graph_.pointwise(CUDNN_POINTWISE_IDENTITY, t_.d_q_sum, 0, t_.d_q);
}

AttentionGraphTensors Builder::backward() {
  const auto& s = shape_;
  add_inputs();
  t_.v = transposed_rows(s.kv_heads, s.max_k, s.head_dim, t_.k_offsets);
  t_.d_o = token_rows(s.q_heads, s.max_q, s.head_dim, kBf16, t_.q_offsets);
  const CudnnTensor scale = graph_.constant(scale_of(s));
  const CudnnTensor sums = row_sums();
  // P = exp(S - LSE), dV = P^T dO.
  const CudnnTensor below_lse = scores(kFp32), p = scores(kFp32), p_t = transposed_scores();
  graph_.pointwise(CUDNN_POINTWISE_SUB, pad(scaled_scores(scale)), t_.lse, below_lse);
  graph_.pointwise(CUDNN_POINTWISE_EXP, causal(below_lse), 0, p);
  graph_.reshape(p, p_t);
  key_gradient(p_t, t_.d_o, t_.d_v_heads, t_.d_v);
  // dS = P (dO V^T - sums) scale, dK = dS^T Q.
  const CudnnTensor d_p = scores(kFp32), centred = scores(kFp32), weighted = scores(kFp32), d_s = scores(kFp32);
  const CudnnTensor d_s_t = transposed_scores();
  graph_.matmul(t_.d_o, t_.v, d_p, {t_.q_lengths, t_.k_lengths, 0});
  graph_.pointwise(CUDNN_POINTWISE_SUB, d_p, sums, centred);
  graph_.pointwise(CUDNN_POINTWISE_MUL, centred, p, weighted);
  graph_.pointwise(CUDNN_POINTWISE_MUL, weighted, scale, d_s);
  graph_.reshape(d_s, d_s_t);
  key_gradient(d_s_t, t_.q, t_.d_k_heads, t_.d_k);
  query_gradient(d_s);
  return t_;
}

}  // namespace

AttentionGraphTensors add_forward(CudnnGraph& graph, const AttentionGraphShape& shape) {
  return Builder(graph, shape).forward();
}

AttentionGraphTensors add_backward(CudnnGraph& graph, const AttentionGraphShape& shape) {
  return Builder(graph, shape).backward();
}

}  // namespace longhaul
