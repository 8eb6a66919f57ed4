#include "validate/device/host_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention/attention_reference.h"
#include "kernels/elementwise/elementwise_reference.h"
#include "sim/core/mix.h"
#include "validate/cpu/wide_product.h"

namespace longhaul {
namespace {

float get(const std::byte* data, ElementType type, std::int64_t index) {
  if (type == ElementType::kBf16) {
    Bf16 value;
    std::memcpy(&value, data + 2 * index, 2);
    return to_float(value);
  }
  float value = 0;
  std::memcpy(&value, data + 4 * index, 4);
  return value;
}

void put(std::byte* data, ElementType type, std::int64_t index, double value) {
  const auto rounded = static_cast<float>(value);
  if (type == ElementType::kBf16) {
    const Bf16 bits = to_bf16(rounded);
    std::memcpy(data + 2 * index, &bits, 2);
  } else {
    std::memcpy(data + 4 * index, &rounded, 4);
  }
}

// First element of row i; -1: a row of zeros.
std::int64_t row_offset(const PlacedRows& rows, std::int64_t i) {
  if (rows.index == nullptr) return i * rows.stride;
  return rows.index[i] < 0 ? -1 : rows.index[i] * rows.stride;
}

float read(const PlacedRows& rows, std::int64_t i, std::int64_t j) {
  const std::int64_t offset = row_offset(rows, i);
  return offset < 0 ? 0.0F : get(rows.data, rows.type, offset + j);
}

class HostKernels {
 public:
  HostKernels(const DeviceArena& memory, StreamId stream) : memory_(memory), stream_(stream) {}

  void operator()(const CopyRowsCall& call) const { copy_on_host(place(call.from), place(call.to), call.accumulate); }
  void operator()(const FillRowsCall& call) const {
    const PlacedRows to = place(call.to);
    for (std::int64_t i = 0; i < to.rows; ++i) {
      for (std::int64_t j = 0; j < to.columns; ++j) put(to.data, to.type, row_offset(to, i) + j, call.value);
    }
  }
  void operator()(const SumRowsCall& call) const {
    std::vector<PlacedRows> from;
    for (const Rows& rows : call.from) from.push_back(place(rows));
    sum_on_host(from, {place(call.to)}, call.accumulate);
  }

  void operator()(const GemmCall& call) const {
    const GemmProblem& problem = call.problem;
    const Matrix a = matrix(call.a, problem.a_rows(), problem.a_columns(), problem.a_stride);
    const Matrix b = matrix(call.b, problem.b_rows(), problem.b_columns(), problem.b_stride);
    Matrix product(problem.m, problem.n);
    constexpr int kThreads = 1;  // small products, and processes of a job share the cores
    wide_product_into(a, problem.transpose_a, b, problem.transpose_b, kThreads, product);
    const ElementType type = problem.output == GemmOutput::kBf16 ? ElementType::kBf16 : ElementType::kFp32;
    std::byte* c = at(call.c);
    for (std::int64_t i = 0; i < problem.m; ++i) {
      for (std::int64_t j = 0; j < problem.n; ++j) {
        const std::int64_t index = i * problem.c_stride + j;
        put(c, type, index, product(i, j) + (problem.accumulate ? get(c, type, index) : 0.0F));
      }
    }
  }

  void operator()(const RmsNormCall& call) const {
    const Doubles x = doubles(call.x, call.tokens * call.width);
    const Doubles w = doubles(call.w, call.width);
    const RmsNormReference norm = rms_norm_reference(x, w, Doubles(x.size(), 0.0), kNormEpsilon);
    store(call.y, ElementType::kBf16, norm.y);
    store(call.r, ElementType::kFp32, norm.r);
  }
  void operator()(const RmsScaleCall& call) const {
    const Doubles x = doubles(call.x, call.tokens * call.width);
    const Doubles w(static_cast<std::size_t>(call.width), 1.0);
    store(call.r, ElementType::kFp32, rms_norm_reference(x, w, Doubles(x.size(), 0.0), kNormEpsilon).r);
  }
  void operator()(const RmsNormBackwardCall& call) const {
    const std::int64_t elements = call.tokens * call.width;
    const RmsNormReference norm = rms_norm_reference(doubles(call.x, elements), doubles(call.w, call.width),
                                                     doubles(call.dy, elements), kNormEpsilon);
    store(call.dx, ElementType::kBf16, norm.dx);
    store(call.dw, ElementType::kFp32, norm.dw);
  }

  void operator()(const RopeCall& call) const {
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < call.head_dim / 2; ++i) {
      frequencies.push_back(std::pow(kRopeBase, -2.0 * static_cast<double>(i) / static_cast<double>(call.head_dim)));
    }
    const std::int64_t width = call.heads * call.head_dim;
    const PlacedRows rows{at(call.x), nullptr, ElementType::kBf16, call.tokens, width, call.stride};
    Doubles x;
    for (std::int64_t i = 0; i < call.tokens; ++i) {
      for (std::int64_t j = 0; j < width; ++j) x.push_back(read(rows, i, j));
    }
    const std::vector<std::int32_t> positions = constants(call.positions, call.tokens);
    const Doubles turned = rope_reference(x, frequencies, positions, static_cast<int>(call.heads), call.inverse);
    for (std::int64_t i = 0; i < call.tokens; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        put(rows.data, rows.type, i * call.stride + j, turned[static_cast<std::size_t>(i * width + j)]);
      }
    }
  }

  void operator()(const SwigluCall& call) const {
    const auto [gate, up] = halves(call.gate_up, call.tokens, call.width);
    store(call.y, ElementType::kBf16, swiglu_reference(gate, up, Doubles(gate.size(), 0.0)).y);
  }
  void operator()(const SwigluBackwardCall& call) const {
    const auto [gate, up] = halves(call.gate_up, call.tokens, call.width);
    const SwigluReference swiglu = swiglu_reference(gate, up, doubles(call.dy, call.tokens * call.width));
    std::byte* out = at(call.d_gate_up);
    for (std::int64_t i = 0; i < call.tokens; ++i) {
      for (std::int64_t j = 0; j < call.width; ++j) {
        const auto from = static_cast<std::size_t>(i * call.width + j);
        put(out, ElementType::kBf16, i * 2 * call.width + j, swiglu.dgate[from]);
        put(out, ElementType::kBf16, i * 2 * call.width + call.width + j, swiglu.dup[from]);
      }
    }
  }

  void operator()(const CrossEntropyCall& call) const {
    const PlacedRows rows{at(call.logits), nullptr, ElementType::kBf16, call.tokens, call.vocabulary, call.stride};
    Doubles logits;
    for (std::int64_t i = 0; i < call.tokens; ++i) {
      for (std::int64_t j = 0; j < call.vocabulary; ++j) logits.push_back(read(rows, i, j));
    }
    const CrossEntropyReference loss =
        cross_entropy_reference(logits, constants(call.targets, call.tokens), static_cast<double>(call.scale));
    for (std::int64_t i = 0; i < call.tokens; ++i) {
      for (std::int64_t j = 0; j < call.vocabulary; ++j) {
        put(rows.data, rows.type, i * call.stride + j,
            loss.gradient[static_cast<std::size_t>(i * call.vocabulary + j)]);
      }
    }
    store(call.loss, ElementType::kFp32, loss.loss);
  }

  void operator()(const EmbeddingBackwardCall& call) const {
    const std::vector<std::int32_t> ids = constants(call.ids, call.count);
    const std::vector<std::int32_t> first = constants(call.first, call.count + 1);
    const std::vector<std::int32_t> listed = constants(call.listed, first.back());
    const std::byte* rows = at(call.rows);
    std::byte* table = at(call.table);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (std::int64_t j = 0; j < call.width; ++j) {
        const std::int64_t index = ids[i] * call.width + j;
        double sum = call.accumulate ? get(table, ElementType::kBf16, index) : 0.0F;
        for (std::int32_t k = first[i]; k < first[i + 1]; ++k) {
          sum += get(rows, ElementType::kBf16, listed[static_cast<std::size_t>(k)] * call.width + j);
        }
        put(table, ElementType::kBf16, index, sum);
      }
    }
  }

  void operator()(const AttentionForwardCall& call) const {
    const ReferenceShape shape{call.q_rows, call.k_rows, call.q_heads, call.kv_heads, call.head_dim};
    const std::int64_t keys = call.k_rows * call.kv_heads * call.head_dim;
    const AttentionReference made =
        attention_reference(shape, *call.pieces, bf16s(call.q, call.q_rows * call.q_heads * call.head_dim),
                            bf16s(call.k, keys), bf16s(call.v, keys));
    store(call.o, ElementType::kBf16, made.o);
    store(call.lse, ElementType::kFp32, made.lse);
  }
  void operator()(const AttentionBackwardCall& call) const;
  void operator()(const MergeCall& call) const;

  void operator()(const AdamwCall& call) const {
    const AdamwReference step = adamw_reference(floats(call.w, call.count), floats(call.m, call.count),
                                                floats(call.v, call.count), floats(call.gradient, call.count),
                                                kLearningRate, kBeta1, kBeta2, kAdamEpsilon, kWeightDecay, 1);
    store(call.w, ElementType::kFp32, step.w);
    store(call.m, ElementType::kFp32, step.m);
    store(call.v, ElementType::kFp32, step.v);
    store(call.weights, ElementType::kBf16, step.w);
  }

 private:
  std::byte* at(const Address& address) const { return memory_.at(address, stream_); }
  PlacedRows place(const Rows& rows) const { return placed(rows, memory_, stream_); }
  std::vector<Bf16> bf16s(const Address& from, std::int64_t count) const {
    std::vector<Bf16> values(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(values.data(), at(from), 2 * values.size());
    return values;
  }
  Doubles doubles(const Address& from, std::int64_t count) const { return to_doubles(bf16s(from, count)); }
  Doubles floats(const Address& from, std::int64_t count) const {
    Doubles values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(get(at(from), ElementType::kFp32, i));
    return values;
  }
  std::vector<std::int32_t> constants(std::int64_t offset, std::int64_t count) const {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(values.data(), memory_.constants + offset, 4 * values.size());
    return values;
  }
  Matrix matrix(const Address& from, std::int64_t rows, std::int64_t columns, std::int64_t stride) const {
    const std::byte* data = at(from);
    Matrix values(rows, columns);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) values(i, j) = get(data, ElementType::kBf16, i * stride + j);
    }
    return values;
  }
  std::pair<Doubles, Doubles> halves(const Address& from, std::int64_t tokens, std::int64_t width) const {
    const Doubles both = doubles(from, tokens * 2 * width);
    std::pair<Doubles, Doubles> split;
    for (std::int64_t i = 0; i < tokens; ++i) {
      const auto row = both.begin() + i * 2 * width;
      split.first.insert(split.first.end(), row, row + width);
      split.second.insert(split.second.end(), row + width, row + 2 * width);
    }
    return split;
  }
  void store(const Address& to, ElementType type, const Doubles& values) const {
    for (std::size_t i = 0; i < values.size(); ++i) put(at(to), type, static_cast<std::int64_t>(i), values[i]);
  }

  const DeviceArena& memory_;
  StreamId stream_;
};

// As the kernels do it: probabilities from the merged log-sum-exp of the op, delta from the merged output, so that a
// backward pass over some of the keys is right (FlashAttention-2, section 2.2).
void HostKernels::operator()(const AttentionBackwardCall& call) const {
  const std::int64_t dim = call.head_dim, group = call.q_heads / call.kv_heads;
  const std::int64_t q_width = call.q_heads * dim, k_width = call.kv_heads * dim;
  const Doubles q = doubles(call.q, call.q_rows * q_width), o = doubles(call.o, call.q_rows * q_width);
  const Doubles d_o = doubles(call.d_o, call.q_rows * q_width), lse = floats(call.lse, call.q_rows * call.q_heads);
  const Doubles k = doubles(call.k, call.k_rows * k_width), v = doubles(call.v, call.k_rows * k_width);
  Doubles dq(q.size(), 0.0), dk(k.size(), 0.0), dv(v.size(), 0.0);
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const auto at_of = [](std::int64_t index) { return static_cast<std::size_t>(index); };
  const auto dot = [&](const double* a, const double* b) {
    double sum = 0;
    for (std::int64_t c = 0; c < dim; ++c) sum += a[c] * b[c];
    return sum;
  };
  const auto delta_of = [&](std::int64_t q_at) { return dot(&o[at_of(q_at)], &d_o[at_of(q_at)]); };
  for (const Piece& piece : *call.pieces) {
    for (std::int64_t i = 0; i < piece.q_count; ++i) {
      for (std::int64_t h = 0; h < call.q_heads; ++h) {
        const std::int64_t q_at = (piece.q_row + i) * q_width + h * dim;
        const double delta = delta_of(q_at);
        const double row_lse = lse[at_of((piece.q_row + i) * call.q_heads + h)];
        for (std::int64_t j = 0; j < piece.k_count; ++j) {
          if (!piece.allows(piece.query_token(i), piece.key_token(j))) continue;
          const std::int64_t k_at = (piece.k_row + j) * k_width + h / group * dim;
          const double p = std::exp(scale * dot(&q[at_of(q_at)], &k[at_of(k_at)]) - row_lse);
          const double ds = p * (dot(&d_o[at_of(q_at)], &v[at_of(k_at)]) - delta) * scale;
          for (std::int64_t c = 0; c < dim; ++c) {
            const std::size_t qc = at_of(q_at + c), kc = at_of(k_at + c);
            dq[qc] += ds * k[kc];
            dk[kc] += ds * q[qc];
            dv[kc] += p * d_o[qc];
          }
        }
      }
    }
  }
  store(call.dq, ElementType::kBf16, dq);
  store(call.dk, ElementType::kBf16, dk);
  store(call.dv, ElementType::kBf16, dv);
}

void HostKernels::operator()(const MergeCall& call) const {
  const std::int64_t width = call.heads * call.head_dim;
  const PlacedRows o = place({call.o, ElementType::kBf16, call.rows, width, width, call.index});
  const PlacedRows lse = place({call.lse, ElementType::kFp32, call.rows, call.heads, call.heads, call.index});
  Doubles whole_o, whole_lse;
  for (std::int64_t i = 0; i < call.rows; ++i) {
    for (std::int64_t j = 0; j < width; ++j) whole_o.push_back(read(o, i, j));
    for (std::int64_t h = 0; h < call.heads; ++h) whole_lse.push_back(read(lse, i, h));
  }
  const MergeReference merged = longhaul::merge_reference(whole_o, whole_lse, doubles(call.part_o, call.rows * width),
                                                          floats(call.part_lse, call.rows * call.heads));
  for (std::int64_t i = 0; i < call.rows; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      put(o.data, o.type, row_offset(o, i) + j, merged.o[static_cast<std::size_t>(i * width + j)]);
    }
    for (std::int64_t h = 0; h < call.heads; ++h) {
      put(lse.data, lse.type, row_offset(lse, i) + h, merged.l[static_cast<std::size_t>(i * call.heads + h)]);
    }
  }
}

}  // namespace

void run_on_host(const DeviceCall& call, const DeviceArena& memory, StreamId scratch_stream) {
  std::visit(HostKernels(memory, scratch_stream), call);
}

void copy_on_host(const PlacedRows& from, const PlacedRows& to, bool accumulate) {
  for (std::int64_t i = 0; i < to.rows; ++i) {
    for (std::int64_t j = 0; j < to.columns; ++j) {
      const std::int64_t index = row_offset(to, i) + j;
      const double before = accumulate ? get(to.data, to.type, index) : 0.0F;
      put(to.data, to.type, index, before + read(from, i, j));
    }
  }
}

void sum_on_host(const std::vector<PlacedRows>& from, const std::vector<PlacedRows>& to, bool accumulate) {
  const PlacedRows& shape = to.front();
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    for (std::int64_t j = 0; j < shape.columns; ++j) {
      double sum = 0;
      for (const PlacedRows& rows : from) sum += read(rows, i, j);
      for (const PlacedRows& rows : to) {
        const std::int64_t index = row_offset(rows, i) + j;
        put(rows.data, rows.type, index, sum + (accumulate ? get(rows.data, rows.type, index) : 0.0F));
      }
    }
  }
}

void noise_on_host(const PlacedRows& to, std::uint32_t seed) {
  for (std::int64_t i = 0; i < to.rows; ++i) {
    for (std::int64_t j = 0; j < to.columns; ++j) {
      const std::uint64_t bits =
          mix((static_cast<std::uint64_t>(seed) << 40) + static_cast<std::uint64_t>(i * to.columns + j));
      put(to.data, to.type, row_offset(to, i) + j, (static_cast<double>(bits >> 11) * 0x1.0p-52 - 1.0) / 64);
    }
  }
}

}  // namespace longhaul
