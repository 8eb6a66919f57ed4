#include "kernels/elementwise/elementwise_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace longhaul {

Doubles to_doubles(const std::vector<Bf16>& values) {
  Doubles result;
  result.reserve(values.size());
  for (const Bf16 value : values) result.push_back(to_float(value));
  return result;
}

Doubles to_doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

RmsNormReference rms_norm_reference(const Doubles& x, const Doubles& w, const Doubles& dy, double epsilon) {
  const std::size_t width = w.size();
  const auto n = static_cast<double>(width);
  RmsNormReference result{Doubles(x.size()), Doubles(x.size() / width), Doubles(x.size()), Doubles(width),
                          Doubles(width)};
  for (std::size_t token = 0; token < x.size() / width; ++token) {
    const std::size_t row = token * width;
    double squares = 0, dot = 0;
    for (std::size_t i = 0; i < width; ++i) squares += x[row + i] * x[row + i];
    const double r = 1 / std::sqrt(squares / n + epsilon);
    for (std::size_t i = 0; i < width; ++i) dot += w[i] * dy[row + i] * x[row + i];
    result.r[token] = r;
    for (std::size_t i = 0; i < width; ++i) {
      result.y[row + i] = x[row + i] * r * w[i];
      result.dx[row + i] = r * (w[i] * dy[row + i] - x[row + i] * r * r * dot / n);
      result.dw[i] += dy[row + i] * x[row + i] * r;
      result.dw_size[i] += std::abs(dy[row + i] * x[row + i] * r);
    }
  }
  return result;
}

SwigluReference swiglu_reference(const Doubles& gate, const Doubles& up, const Doubles& dy) {
  SwigluReference result;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double s = 1 / (1 + std::exp(-gate[i]));
    result.y.push_back(gate[i] * s * up[i]);
    result.dgate.push_back(dy[i] * up[i] * s * (1 + gate[i] * (1 - s)));
    result.dup.push_back(dy[i] * gate[i] * s);
  }
  return result;
}

Doubles rope_reference(const Doubles& x, const std::vector<double>& frequencies,
                       const std::vector<std::int32_t>& positions, int heads, bool inverse) {
  const std::size_t half = frequencies.size();
  Doubles result(x.size());
  for (std::size_t row = 0; row < x.size() / (2 * half); ++row) {
    const std::int32_t position = positions[row / static_cast<std::size_t>(heads)];
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = (inverse ? -1.0 : 1.0) * position * frequencies[i];
      const std::size_t a = row * 2 * half + i, b = a + half;
      result[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      result[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
    }
  }
  return result;
}

CrossEntropyReference cross_entropy_reference(const Doubles& logits, const std::vector<std::int32_t>& targets,
                                              double scale) {
  const std::size_t vocabulary = logits.size() / targets.size();
  CrossEntropyReference result{{}, Doubles(logits.size())};
  for (std::size_t token = 0; token < targets.size(); ++token) {
    const std::size_t row = token * vocabulary;
    if (targets[token] < 0) {
      result.loss.push_back(0);
      continue;
    }
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row);
    const double largest = *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(vocabulary));
    double sum = 0;
    for (std::size_t i = 0; i < vocabulary; ++i) sum += std::exp(logits[row + i] - largest);
    const double log_sum = largest + std::log(sum);
    const std::size_t hit = row + static_cast<std::size_t>(targets[token]);
    result.loss.push_back(log_sum - logits[hit]);
    for (std::size_t i = row; i < row + vocabulary; ++i) {
      result.gradient[i] = (std::exp(logits[i] - log_sum) - (i == hit ? 1 : 0)) * scale;
    }
  }
  return result;
}

AdamwReference adamw_reference(const Doubles& w, const Doubles& m, const Doubles& v, const Doubles& g,
                               double learning_rate, double beta1, double beta2, double epsilon, double weight_decay,
                               std::int64_t step) {
  const auto t = static_cast<double>(step);
  AdamwReference result;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double new_m = beta1 * m[i] + (1 - beta1) * g[i];
    const double new_v = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
    const double decayed = w[i] - learning_rate * weight_decay * w[i];
    const double mean = new_m / (1 - std::pow(beta1, t)), square = new_v / (1 - std::pow(beta2, t));
    result.w.push_back(decayed - learning_rate * mean / (std::sqrt(square) + epsilon));
    result.m.push_back(new_m);
    result.v.push_back(new_v);
  }
  return result;
}

MergeReference merge_reference(const Doubles& o, const Doubles& l, const Doubles& part, const Doubles& part_l) {
  const std::size_t head_dim = o.size() / l.size();
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  MergeReference result{Doubles(o.size()), Doubles(l.size(), kNothing)};
  for (std::size_t row = 0; row < l.size(); ++row) {
    if (l[row] == kNothing && part_l[row] == kNothing) continue;
    const double largest = std::max(l[row], part_l[row]);
    const double a = std::exp(l[row] - largest), b = std::exp(part_l[row] - largest);
    result.l[row] = largest + std::log(a + b);
    for (std::size_t i = row * head_dim; i < (row + 1) * head_dim; ++i) {
      result.o[i] = ((a > 0 ? a * o[i] : 0) + (b > 0 ? b * part[i] : 0)) / (a + b);
    }
  }
  return result;
}

}  // namespace longhaul
