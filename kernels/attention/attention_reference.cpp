#include "kernels/attention/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>

namespace longhaul {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// One head's rows out of rows x heads x dim.
class HeadRows {
 public:
  HeadRows(std::span<const Bf16> data, std::int64_t heads, std::int64_t head, std::int64_t dim)
      : data_(data), heads_(heads), head_(head), dim_(dim) {}
  double at(std::int64_t row, std::int64_t d) const { return to_float(data_[index(row, d)]); }
  std::size_t index(std::int64_t row, std::int64_t d) const {
    return static_cast<std::size_t>((row * heads_ + head_) * dim_ + d);
  }
  double dot(std::int64_t row, const HeadRows& other, std::int64_t other_row) const {
    double sum = 0;
    for (std::int64_t d = 0; d < dim_; ++d) sum += at(row, d) * other.at(other_row, d);
    return sum;
  }

 private:
  std::span<const Bf16> data_;
  std::int64_t heads_, head_, dim_;
};

// Keys that a query row sees, one entry a pair.
std::vector<std::int64_t> keys_of(std::span<const Piece> pieces, std::int64_t row) {
  std::vector<std::int64_t> keys;
  for (const Piece& piece : pieces) {
    if (row < piece.q_row || row >= piece.q_row + piece.q_count) continue;
    const std::int64_t token = piece.query_token(row - piece.q_row);
    for (std::int64_t k = 0; k < piece.k_count; ++k) {
      if (piece.allows(token, piece.key_token(k))) keys.push_back(piece.k_row + k);
    }
  }
  return keys;
}

// Probabilities of one query over its keys, and its log-sum-exp.
struct Softmax {
  std::vector<double> p;
  double lse = kMinusInfinity;
};
Softmax softmax_of(const HeadRows& q, const HeadRows& k, std::int64_t row, const std::vector<std::int64_t>& keys,
                   double scale) {
  Softmax result;
  double top = kMinusInfinity;
  for (const std::int64_t key : keys) {
    result.p.push_back(scale * q.dot(row, k, key));
    top = std::max(top, result.p.back());
  }
  double sum = 0;
  for (const double score : result.p) sum += std::exp(score - top);
  if (!keys.empty()) result.lse = top + std::log(sum);
  for (double& score : result.p) score = std::exp(score - result.lse);
  return result;
}

void check(const ReferenceShape& shape, std::size_t q, std::size_t k, std::size_t v) {
  if (q != static_cast<std::size_t>(shape.q_rows * shape.q_heads * shape.head_dim) || k != v ||
      k != static_cast<std::size_t>(shape.k_rows * shape.kv_heads * shape.head_dim)) {
    throw std::invalid_argument("attention_reference: array sizes do not fit the shape");
  }
}

}  // namespace

AttentionReference attention_reference(const ReferenceShape& shape, std::span<const Piece> pieces,
                                       std::span<const Bf16> q, std::span<const Bf16> k, std::span<const Bf16> v) {
  check(shape, q.size(), k.size(), v.size());
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  AttentionReference result;
  result.o.assign(q.size(), 0.0);
  result.lse.assign(static_cast<std::size_t>(shape.q_rows * shape.q_heads), kMinusInfinity);
  for (std::int64_t row = 0; row < shape.q_rows; ++row) {
    const std::vector<std::int64_t> keys = keys_of(pieces, row);
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      const std::int64_t kv_head = head / (shape.q_heads / shape.kv_heads);
      const HeadRows query(q, shape.q_heads, head, shape.head_dim);
      const HeadRows key(k, shape.kv_heads, kv_head, shape.head_dim);
      const HeadRows value(v, shape.kv_heads, kv_head, shape.head_dim);
      const Softmax softmax = softmax_of(query, key, row, keys, scale);
      result.lse[static_cast<std::size_t>(row * shape.q_heads + head)] = softmax.lse;
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        double sum = 0;
        for (std::size_t i = 0; i < keys.size(); ++i) sum += softmax.p[i] * value.at(keys[i], d);
        result.o[query.index(row, d)] = sum;
      }
    }
  }
  return result;
}

AttentionGradients attention_reference_backward(const ReferenceShape& shape, std::span<const Piece> pieces,
                                                std::span<const Bf16> q, std::span<const Bf16> k,
                                                std::span<const Bf16> v, std::span<const Bf16> d_o) {
  check(shape, q.size(), k.size(), v.size());
  if (d_o.size() != q.size()) throw std::invalid_argument("attention_reference_backward: d_o is not shaped like q");
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  AttentionGradients result{std::vector<double>(q.size()), std::vector<double>(k.size()),
                            std::vector<double>(v.size())};
  for (std::int64_t row = 0; row < shape.q_rows; ++row) {
    const std::vector<std::int64_t> keys = keys_of(pieces, row);
    for (std::int64_t head = 0; head < shape.q_heads; ++head) {
      const std::int64_t kv_head = head / (shape.q_heads / shape.kv_heads);
      const HeadRows query(q, shape.q_heads, head, shape.head_dim);
      const HeadRows gradient(d_o, shape.q_heads, head, shape.head_dim);
      const HeadRows key(k, shape.kv_heads, kv_head, shape.head_dim);
      const HeadRows value(v, shape.kv_heads, kv_head, shape.head_dim);
      const Softmax softmax = softmax_of(query, key, row, keys, scale);
      std::vector<double> d_p(keys.size());
      double delta = 0;  // sum of p d_p = rowsum(dO O)
      for (std::size_t i = 0; i < keys.size(); ++i) {
        d_p[i] = gradient.dot(row, value, keys[i]);
        delta += softmax.p[i] * d_p[i];
      }
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const double d_s = softmax.p[i] * (d_p[i] - delta) * scale;
        for (std::int64_t d = 0; d < shape.head_dim; ++d) {
          result.q[query.index(row, d)] += d_s * key.at(keys[i], d);
          result.k[key.index(keys[i], d)] += d_s * query.at(row, d);
          result.v[key.index(keys[i], d)] += softmax.p[i] * gradient.at(row, d);
        }
      }
    }
  }
  return result;
}

void merge_reference(std::vector<double>& o, std::vector<double>& lse, std::span<const double> part_o,
                     std::span<const double> part_lse, std::int64_t head_dim) {
  const auto dim = static_cast<std::size_t>(head_dim);
  if (part_o.size() != o.size() || part_lse.size() != lse.size() || o.size() != lse.size() * dim) {
    throw std::invalid_argument("merge_reference: array sizes differ");
  }
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (lse[i] == kMinusInfinity && part_lse[i] == kMinusInfinity) continue;
    const double top = std::max(lse[i], part_lse[i]);
    const double merged = top + std::log(std::exp(lse[i] - top) + std::exp(part_lse[i] - top));
    const double old_weight = std::exp(lse[i] - merged);
    const double new_weight = std::exp(part_lse[i] - merged);
    for (std::size_t d = 0; d < dim; ++d) {
      o[i * dim + d] = old_weight * o[i * dim + d] + new_weight * part_o[i * dim + d];
    }
    lse[i] = merged;
  }
}

}  // namespace longhaul
