// Element-wise functions, merging of partial attention, and the optimizer. Operand order: sim/schedule/op.h.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "sim/core/mix.h"
#include "validate/cpu/ops.h"

namespace longhaul {
namespace {

constexpr double kNormEpsilon = 1e-5;
constexpr double kRopeBase = 10000.0;

void require_operands(const Machine& machine, const OpInstance& at, std::size_t count) {
  if (at.op->operands.size() != count) {
    machine.fail(
        at, fmt::format("{} needs {} operands, has {}", to_string(at.op->function), count, at.op->operands.size()));
  }
}

Region operand(Machine& machine, const OpInstance& at, std::size_t index) {
  return machine.checked(at, at.op->operands[index]);
}

void require_equal(const Machine& machine, const OpInstance& at, const Region& a, const Region& b) {
  if (a.rows() == b.rows() && a.columns() == b.columns()) return;
  machine.fail(at, fmt::format("operands of {} x {} and {} x {} differ", a.rows(), a.columns(), b.rows(), b.columns()));
}

// The id that a row feeds into the embedding; -1 for padding.
std::int64_t input_id(const RowToken& token, std::int64_t vocab) {
  if (token.document < 0) return -1;
  if (token.view == TokenView::kNoisy && is_corrupted(token.document, token.position)) return vocab - 1;
  return token_id(token.document, token.position, vocab);
}

// The id that a row of logits must predict; -1 if the loss does not count it.
std::int64_t label_id(const Batch& batch, const RowToken& token, std::int64_t vocab) {
  if (token.document < 0) return -1;
  if (batch.objective.kind == ObjectiveKind::kBlockDiffusion) {
    const bool counted = token.view == TokenView::kNoisy && is_corrupted(token.document, token.position);
    return counted ? token_id(token.document, token.position, vocab) : -1;
  }
  const bool last = token.position + 1 == batch.documents[static_cast<std::size_t>(token.document)];
  return last ? -1 : token_id(token.document, token.position + 1, vocab);
}

void embedding(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 2);
  const Region table = operand(machine, at, 0);
  const Region rows = operand(machine, at, 1);
  const std::int64_t width = rows.columns();
  const std::int64_t vocab = machine.schedule.model.vocab;
  if (table.elements() != vocab * width) machine.fail(at, "the table is not vocab x row width");
  const std::vector<RowToken> tokens = view_tokens(machine, at, rows);
  Matrix values = Matrix::Zero(rows.rows(), width);
  for (std::int64_t i = 0; i < rows.rows(); ++i) {
    const std::int64_t id = input_id(tokens[static_cast<std::size_t>(i)], vocab);
    if (id >= 0) values.row(i) = table.vector().segment(id * width, width).transpose();
  }
  rows.store(values);
}

void embedding_backward(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 2);
  const Region rows = operand(machine, at, 0);
  const Region table = operand(machine, at, 1);
  const std::int64_t width = rows.columns();
  const std::int64_t vocab = machine.schedule.model.vocab;
  if (table.elements() != vocab * width) machine.fail(at, "the table's gradient is not vocab x row width");
  if (table.access() == Access::kWrite) table.vector().setZero();
  const std::vector<RowToken> tokens = view_tokens(machine, at, rows);
  for (std::int64_t i = 0; i < rows.rows(); ++i) {
    const std::int64_t id = input_id(tokens[static_cast<std::size_t>(i)], vocab);
    if (id < 0) continue;
    table.vector().segment(id * width, width) += Eigen::Map<const Eigen::VectorXd>(rows.row(i), width);
  }
}

void rms_norm(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 3);
  const Region x = operand(machine, at, 0);
  const Region weight = operand(machine, at, 1);
  const Region y = operand(machine, at, 2);
  require_equal(machine, at, x, y);
  if (weight.elements() != x.columns()) machine.fail(at, "the norm's weight is not as wide as its rows");
  Matrix values = x.load();
  for (std::int64_t i = 0; i < values.rows(); ++i) {
    const double mean_square = values.row(i).squaredNorm() / static_cast<double>(values.cols());
    values.row(i) = (values.row(i) / std::sqrt(mean_square + kNormEpsilon)).cwiseProduct(weight.vector().transpose());
  }
  y.store(values);
}

// With n = x / s, s = sqrt(mean(x^2) + eps), g = dy w: dx = (g - n mean(g n)) / s, dw = sum over rows of dy n.
void rms_norm_backward(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 5);
  const Region x_view = operand(machine, at, 0);
  const Region weight = operand(machine, at, 1);
  const Region dy_view = operand(machine, at, 2);
  const Region dx_view = operand(machine, at, 3);
  const Region dweight = operand(machine, at, 4);
  require_equal(machine, at, x_view, dy_view);
  require_equal(machine, at, x_view, dx_view);
  const Matrix x = x_view.load();
  const Matrix dy = dy_view.load();
  const auto width = static_cast<double>(x.cols());
  Matrix dx(x.rows(), x.cols());
  Eigen::RowVectorXd dw = Eigen::RowVectorXd::Zero(x.cols());
  for (std::int64_t i = 0; i < x.rows(); ++i) {
    const double scale = 1.0 / std::sqrt(x.row(i).squaredNorm() / width + kNormEpsilon);
    const Eigen::RowVectorXd n = x.row(i) * scale;
    const Eigen::RowVectorXd g = dy.row(i).cwiseProduct(weight.vector().transpose());
    dx.row(i) = (g - n * (g.dot(n) / width)) * scale;
    dw += dy.row(i).cwiseProduct(n);
  }
  dx_view.store(dx);
  if (dweight.access() == Access::kWrite) dweight.vector().setZero();
  dweight.vector() += dw.transpose();
}

// Pair (i, i + d/2) of each head turns by position x base^(-2i/d); the gradient turns back.
void rope(Machine& machine, const OpInstance& at, double direction) {
  const std::int64_t dim = at.op->head_dim > 0 ? at.op->head_dim : machine.schedule.model.head_dim;
  const std::int64_t half = dim / 2;
  for (const View& view : at.op->operands) {
    Region rows = machine.region(at, view);
    machine.require_written(at, rows, 0, rows.rows());
    if (rows.columns() % dim != 0) machine.fail(at, "rope over a part of a head");
    const std::vector<RowToken> tokens = view_tokens(machine, at, rows);
    for (std::int64_t i = 0; i < rows.rows(); ++i) {
      const RowToken& token = tokens[static_cast<std::size_t>(i)];
      if (token.document < 0) continue;
      for (std::int64_t p = 0; p < half; ++p) {
        const double frequency = std::pow(kRopeBase, -2.0 * static_cast<double>(p) / static_cast<double>(dim));
        const double angle = direction * static_cast<double>(token.position) * frequency;
        const double cosine = std::cos(angle);
        const double sine = std::sin(angle);
        for (double* head = rows.row(i); head < rows.row(i) + rows.columns(); head += dim) {
          const double a = head[p];
          const double b = head[p + half];
          head[p] = a * cosine - b * sine;
          head[p + half] = a * sine + b * cosine;
        }
      }
    }
  }
}

void swiglu(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 2);
  const Region gate_up = operand(machine, at, 0);
  const Region out = operand(machine, at, 1);
  const std::int64_t ffn = out.columns();
  if (gate_up.columns() != 2 * ffn || gate_up.rows() != out.rows()) machine.fail(at, "gate_up is not rows x 2 ffn");
  const Matrix both = gate_up.load();
  const auto gate = both.leftCols(ffn).array();
  out.store((gate / (1.0 + (-gate).exp()) * both.rightCols(ffn).array()).matrix());
}

void swiglu_backward(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 3);
  const Region gate_up = operand(machine, at, 0);
  const Region d_out = operand(machine, at, 1);
  const Region d_gate_up = operand(machine, at, 2);
  require_equal(machine, at, gate_up, d_gate_up);
  const std::int64_t ffn = d_out.columns();
  if (gate_up.columns() != 2 * ffn || gate_up.rows() != d_out.rows()) machine.fail(at, "gate_up is not rows x 2 ffn");
  const Matrix both = gate_up.load();
  const Matrix gradient = d_out.load();
  const auto gate = both.leftCols(ffn).array();
  const Matrix sigmoid = (1.0 / (1.0 + (-gate).exp())).matrix();
  Matrix result(both.rows(), both.cols());
  const auto slope = sigmoid.array() * (1.0 + gate * (1.0 - sigmoid.array()));  // of silu
  result.leftCols(ffn) = (gradient.array() * both.rightCols(ffn).array() * slope).matrix();
  result.rightCols(ffn) = (gradient.array() * gate * sigmoid.array()).matrix();
  d_gate_up.store(result);
}

void add(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 3);
  const Region a = operand(machine, at, 0);
  const Region b = operand(machine, at, 1);
  const Region sum = operand(machine, at, 2);
  require_equal(machine, at, a, b);
  require_equal(machine, at, a, sum);
  sum.store(a.load() + b.load());
}

// kCast and kAccumulate differ in the access of their second view alone.
void copy(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 2);
  const Region source = operand(machine, at, 0);
  const Region target = operand(machine, at, 1);
  require_equal(machine, at, source, target);
  target.store(source.load());
}

void zero(Machine& machine, const OpInstance& at) {
  for (const View& view : at.op->operands) {
    std::vector<TensorId> tensors;
    resolve_all(at, view.tensor, tensors);
    if (view.tensor.chunks < 0) {
      const Region region = machine.region(at, view);
      for (std::int64_t i = 0; i < region.rows(); ++i) std::fill_n(region.row(i), region.columns(), 0.0);
      continue;
    }
    for (const TensorId& id : tensors) {  // whole tensors
      TensorData* tensor = machine.ranks[static_cast<std::size_t>(at.rank)].find(id);
      if (tensor == nullptr)
        machine.fail(at, fmt::format("uses {}, which is not held", tensor_name(machine.schedule, id)));
      std::fill(tensor->values.begin(), tensor->values.end(), 0.0);
    }
  }
}

// Values of what comes from outside the step: in [-1, 1), by tensor kind, layer, token and column, the same on every
// rank. Padding is zero.
void given(Machine& machine, const OpInstance& at) {
  for (const View& view : at.op->operands) {
    const Region region = machine.region(at, view);
    const std::vector<RowToken> tokens = view_tokens(machine, at, region);
    const TensorId id = resolve(at, view.tensor);
    for (std::int64_t i = 0; i < region.rows(); ++i) {
      const RowToken& token = tokens[static_cast<std::size_t>(i)];
      for (std::int64_t j = 0; j < region.columns(); ++j) {
        region.row(i)[j] = token.document < 0 ? 0.0 : given_value(id.kind, at.layer, token, view.column_begin + j);
      }
    }
  }
}

void cross_entropy(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 1);
  const Region logits = machine.region(at, at.op->operands[0]);
  machine.require_written(at, logits, 0, logits.rows());
  const std::vector<RowToken> tokens = view_tokens(machine, at, logits);
  const std::int64_t vocab = logits.columns();
  if (vocab != machine.schedule.model.vocab) machine.fail(at, "logits are not as wide as the vocabulary");
  const auto counted = static_cast<double>(machine.counted_tokens);
  double loss = 0;
  for (std::int64_t i = 0; i < logits.rows(); ++i) {
    Eigen::Map<Eigen::ArrayXd> row(logits.row(i), vocab);
    const std::int64_t label = label_id(*machine.schedule.batch, tokens[static_cast<std::size_t>(i)], vocab);
    if (label < 0) {
      row.setZero();
      continue;
    }
    const double top = row.maxCoeff();
    const double of_label = row[label];
    row = (row - top).exp();
    const double sum = row.sum();
    loss += top + std::log(sum) - of_label;
    row *= 1.0 / (sum * counted);
    row[label] -= 1.0 / counted;
  }
  if (machine.counted_tokens > 0) machine.loss[static_cast<std::size_t>(at.rank)] += loss / counted;
}

}  // namespace

double given_value(TensorKindId kind, std::int16_t layer, const RowToken& token, std::int64_t column) {
  std::uint64_t key = mix(static_cast<std::uint64_t>(kind) << 32 | static_cast<std::uint16_t>(layer));
  key = mix(key ^ (static_cast<std::uint64_t>(token.document) << 1 | (token.view == TokenView::kNoisy ? 1U : 0U)));
  key = mix(mix(key ^ static_cast<std::uint64_t>(token.position)) + static_cast<std::uint64_t>(column));
  return static_cast<double>(key >> 11) * 0x1.0p-52 - 1.0;
}

void run_elementwise(Machine& machine, const OpInstance& at) {
  switch (at.op->function) {
    case Function::kEmbedding:
      return embedding(machine, at);
    case Function::kEmbeddingBackward:
      return embedding_backward(machine, at);
    case Function::kRmsNorm:
      return rms_norm(machine, at);
    case Function::kRmsNormBackward:
      return rms_norm_backward(machine, at);
    case Function::kRope:
      return rope(machine, at, 1.0);
    case Function::kRopeBackward:
      return rope(machine, at, -1.0);
    case Function::kSwiGlu:
      return swiglu(machine, at);
    case Function::kSwiGluBackward:
      return swiglu_backward(machine, at);
    case Function::kAdd:
      return add(machine, at);
    case Function::kAccumulate:
    case Function::kCast:
      return copy(machine, at);
    case Function::kZero:
      return zero(machine, at);
    case Function::kGiven:
      return given(machine, at);
    case Function::kCrossEntropy:
      return cross_entropy(machine, at);
    case Function::kNone:
    case Function::kSplitColumns:
    case Function::kJoinColumns:
      break;
  }
  machine.fail(at, fmt::format("{} is not an element-wise function", to_string(at.op->function)));
}

// (o, lse) of two disjoint key sets: weights exp(lse - log(exp(lse) + exp(lse_part))).
void run_merge_partials(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 4);
  const Region o_part = operand(machine, at, 0);
  const Region lse_part = operand(machine, at, 1);
  const Region o = machine.region(at, at.op->operands[2]);
  const Region lse = machine.region(at, at.op->operands[3]);
  machine.require_written(at, o, 0, o.rows());
  machine.require_written(at, lse, 0, lse.rows());
  require_equal(machine, at, o_part, o);
  require_equal(machine, at, lse_part, lse);
  if (o.rows() != lse.rows() || o.columns() % lse.columns() != 0) machine.fail(at, "lse is not rows x heads");
  const std::int64_t heads = lse.columns();
  const std::int64_t dim = o.columns() / heads;
  for (std::int64_t i = 0; i < o.rows(); ++i) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const double a = lse.row(i)[h];
      const double b = lse_part.row(i)[h];
      const double top = std::max(a, b);
      if (top == -std::numeric_limits<double>::infinity()) continue;  // neither saw a key: o stays 0
      const double sum = std::exp(a - top) + std::exp(b - top);
      Eigen::Map<Eigen::VectorXd> into(o.row(i) + h * dim, dim);
      const Eigen::Map<const Eigen::VectorXd> part(o_part.row(i) + h * dim, dim);
      into = (into * std::exp(a - top) + part * std::exp(b - top)) / sum;
      lse.row(i)[h] = top + std::log(sum);
    }
  }
}

// AdamW (Loshchilov, Hutter, ICLR 2019), first step. State: one row a parameter; columns m, v, before them the master
// weight if there are three. The master weight equals the parameter here, since both are doubles.
void run_optimizer(Machine& machine, const OpInstance& at) {
  require_operands(machine, at, 3);
  constexpr double kRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.95, kEpsilon = 1e-8, kDecay = 0.1;
  const Region state = machine.region(at, at.op->operands[0]);
  const Region gradient = operand(machine, at, 1);
  const Region parameters = machine.region(at, at.op->operands[2]);
  machine.require_written(at, state, 0, state.rows());
  machine.require_written(at, parameters, 0, parameters.rows());
  const std::int64_t n = parameters.elements();
  if (gradient.elements() != n || state.rows() != n || (state.columns() != 2 && state.columns() != 3)) {
    machine.fail(at, fmt::format("optimizer over {} parameters, {} gradients, {} x {} of state", n, gradient.elements(),
                                 state.rows(), state.columns()));
  }
  const std::int64_t moments = state.columns() - 2;
  for (std::int64_t i = 0; i < n; ++i) {
    double* row = state.row(i);
    double& m = row[moments];
    double& v = row[moments + 1];
    double& p = parameters.vector()[i];
    const double g = gradient.vector()[i];
    m = kBeta1 * m + (1 - kBeta1) * g;
    v = kBeta2 * v + (1 - kBeta2) * g * g;
    p -= kRate * (m / (1 - kBeta1) / (std::sqrt(v / (1 - kBeta2)) + kEpsilon) + kDecay * p);
    if (moments > 0) row[0] = p;
  }
}

}  // namespace longhaul
