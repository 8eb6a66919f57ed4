#include "validate/gpu/flash_attention_3/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace longhaul {
namespace {

constexpr std::size_t kDim = kFlashHeadDim;

std::vector<double> doubles(const std::vector<Bf16>& values) {
  std::vector<double> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), [](Bf16 value) { return to_float(value); });
  return result;
}

double dot(const double* a, const double* b) {
  double sum = 0;
  for (std::size_t i = 0; i < kDim; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(double* to, double factor, const double* from) {
  for (std::size_t i = 0; i < kDim; ++i) to[i] += factor * from[i];
}

class Reference {
 public:
  Reference(const AttentionCase& one, const AttentionValues& values)
      : one_(one), q_(doubles(values.q)), k_(doubles(values.k)), v_(doubles(values.v)), d_o_(doubles(values.d_o)) {
    out_.o.resize(q_.size());
    if (!one.backward) return;
    out_.d_q.resize(q_.size());
    out_.d_k.resize(k_.size());
    out_.d_v.resize(k_.size());
  }

  ReferenceValues run() && {
    std::size_t q_begin = 0, k_begin = 0;
    for (const AttentionEntry& entry : one_.entries) {
      const auto queries = static_cast<std::size_t>(entry.queries), keys = static_cast<std::size_t>(entry.keys);
      for (std::int64_t i = 0; i < entry.count; ++i) {
        for (std::size_t row = 0; row < queries; ++row) {
          const std::size_t seen = one_.causal ? keys - queries + row + 1 : keys;
          for (int head = 0; head < one_.q_heads; ++head) attend(q_begin + row, k_begin, seen, head);
        }
        q_begin += queries;
        k_begin += keys;
      }
    }
    return std::move(out_);
  }

 private:
  std::size_t q_at(std::size_t row, int head) const {
    return (row * static_cast<std::size_t>(one_.q_heads) + static_cast<std::size_t>(head)) * kDim;
  }
  std::size_t k_at(std::size_t row, int head) const {
    const int key_head = head / (one_.q_heads / one_.kv_heads);
    return (row * static_cast<std::size_t>(one_.kv_heads) + static_cast<std::size_t>(key_head)) * kDim;
  }

  // One query on keys k_begin .. k_begin + seen - 1.
  void attend(std::size_t row, std::size_t k_begin, std::size_t seen, int head) {
    const std::size_t at = q_at(row, head);
    std::vector<double> p(seen);
    for (std::size_t j = 0; j < seen; ++j) p[j] = scale_ * dot(&q_[at], &k_[k_at(k_begin + j, head)]);
    const double most = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& value : p) sum += value = std::exp(value - most);
    for (std::size_t j = 0; j < seen; ++j) {
      p[j] /= sum;
      add_scaled(&out_.o[at], p[j], &v_[k_at(k_begin + j, head)]);
    }
    if (!one_.backward) return;
    const double row_sum = dot(&d_o_[at], &out_.o[at]);
    for (std::size_t j = 0; j < seen; ++j) {
      const std::size_t key = k_at(k_begin + j, head);
      const double d_s = scale_ * p[j] * (dot(&d_o_[at], &v_[key]) - row_sum);
      add_scaled(&out_.d_v[key], p[j], &d_o_[at]);
      add_scaled(&out_.d_k[key], d_s, &q_[at]);
      add_scaled(&out_.d_q[at], d_s, &k_[key]);
    }
  }

  const AttentionCase& one_;
  const double scale_ = 1.0 / std::sqrt(static_cast<double>(kDim));
  std::vector<double> q_, k_, v_, d_o_;
  ReferenceValues out_;
};

}  // namespace

ReferenceValues reference_attention(const AttentionCase& one, const AttentionValues& values) {
  return Reference(one, values).run();
}

double largest_error(const std::vector<Bf16>& x, const std::vector<double>& reference) {
  if (x.empty() || x.size() != reference.size()) throw std::invalid_argument("largest_error: sizes");
  double worst = 0, most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = to_float(x[i]);
    if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(value - reference[i]));
    most = std::max(most, std::abs(reference[i]));
  }
  return worst / most;
}

}  // namespace longhaul
