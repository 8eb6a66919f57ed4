#include "validate/cpu/reference.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/workload/arithmetic.h"
#include "validate/cpu/parameters.h"
#include "validate/cpu/reference_attention.h"
#include "validate/cpu/wide_product.h"

namespace longhaul {
namespace {

using ConstMatrix = Eigen::Map<const Matrix>;
using ConstRow = Eigen::Map<const Eigen::RowVectorXd>;

// A layer's parameters, or their gradients, as matrices over the flat range.
template <class Scalar, class MatrixMap, class RowMap>
struct LayerViews {
  RowMap attention_norm;
  MatrixMap qkv, output;
  RowMap ffn_norm;
  MatrixMap gate_up, down;

  LayerViews(const ModelShape& m, Scalar* flat, const LayerParameters& p)
      : attention_norm(flat, m.hidden),
        qkv(flat + p.attention_norm, m.hidden, m.qkv_width()),
        output(flat + p.attention_norm + p.qkv, m.q_width(), m.hidden),
        ffn_norm(flat + p.attention_norm + p.qkv + p.output, m.hidden),
        gate_up(flat + p.attention_norm + p.qkv + p.output + p.ffn_norm, m.hidden, 2 * m.ffn),
        down(flat + p.attention_norm + p.qkv + p.output + p.ffn_norm + p.gate_up, m.ffn, m.hidden) {}
};
using Weights = LayerViews<const double, ConstMatrix, ConstRow>;
using Gradients = LayerViews<double, Eigen::Map<Matrix>, Eigen::Map<Eigen::RowVectorXd>>;

// Runs body(first row, rows) over blocks of rows: the same blocks on any number of threads.
template <class Body>
void by_rows(std::int64_t rows, int threads, const Body& body) {
  constexpr std::int64_t kRows = 64;
  share_out(ceil_div(rows, kRows), std::max(1, threads),
            [&](std::int64_t block) { body(block * kRows, std::min(kRows, rows - block * kRows)); });
}

// y = x / rms(x) * weight; `unit` = x / rms(x) and `inverse` = 1 / rms(x) serve the backward pass.
struct Norm {
  Matrix unit;
  Eigen::VectorXd inverse;

  Matrix forward(const Matrix& x, const ConstRow& weight, int threads) {
    inverse.resize(x.rows());
    unit.resize(x.rows(), x.cols());
    Matrix y(x.rows(), x.cols());
    by_rows(x.rows(), threads, [&](std::int64_t first, std::int64_t rows) {
      const auto part = x.middleRows(first, rows);
      inverse.segment(first, rows) =
          ((part.array().square().rowwise().sum() / static_cast<double>(x.cols())) + 1e-5).sqrt().inverse();
      unit.middleRows(first, rows) = inverse.segment(first, rows).asDiagonal() * part;
      y.middleRows(first, rows) = unit.middleRows(first, rows) * weight.asDiagonal();
    });
    return y;
  }
  // Returns dx; adds to the weight's gradient.
  template <class Row>
  Matrix backward(const Matrix& dy, const ConstRow& weight, Row&& d_weight, int threads) const {
    d_weight += (dy.array() * unit.array()).colwise().sum().matrix();
    Matrix dx(dy.rows(), dy.cols());
    by_rows(dy.rows(), threads, [&](std::int64_t first, std::int64_t rows) {
      const auto part = unit.middleRows(first, rows);
      const Matrix g = dy.middleRows(first, rows) * weight.asDiagonal();
      const Eigen::VectorXd mean = (g.array() * part.array()).rowwise().mean();
      dx.middleRows(first, rows) = inverse.segment(first, rows).asDiagonal() * (g - mean.asDiagonal() * part);
    });
    return dx;
  }
};

// What a layer keeps for its backward pass.
struct LayerState {
  Norm attention_norm, ffn_norm;
  Matrix attention_input, ffn_input;  // after the norms
  Matrix q, k, v;                     // after RoPE
  Matrix o, lse;
  Matrix gate_up, activated;
};

class Step {
 public:
  Step(const ModelShape& model, const Batch& batch, const ParameterValues& parameters, int threads,
       const ProductElsewhere& elsewhere)
      : model_(model),
        batch_(batch),
        parameters_(parameters),
        threads_(threads),
        elsewhere_(elsewhere),
        layout_(layer_parameters(model)) {
    number_rows();
    fill_rope_tables();
  }

  Reference run(bool backward_too) {
    Matrix x = embed();
    states_.resize(static_cast<std::size_t>(model_.layers));
    for (std::size_t l = 0; l < states_.size(); ++l) x = forward_layer(x, l);
    result_.rows = rows_;
    if (backward_too) {
      result_.layers.resize(states_.size());
      result_.embedding_grads.assign(parameters_.embedding.size(), 0.0);
      result_.head_grads.assign(parameters_.head.size(), 0.0);
      result_.layer_grads.resize(parameters_.layers.size());
    }
    Matrix dx = head(x, backward_too);
    if (!backward_too) return std::move(result_);
    for (std::size_t l = states_.size(); l-- > 0;) dx = backward_layer(dx, l);
    Eigen::Map<Matrix> table(result_.embedding_grads.data(), model_.vocab, model_.hidden);
    for (std::int64_t i = 0; i < rows_; ++i) table.row(inputs_[static_cast<std::size_t>(i)]) += dx.row(i);
    return std::move(result_);
  }

 private:
  void multiply(const ProductOperand& a, bool transpose_a, const ProductOperand& b, bool transpose_b,
                ProductResult c) const {
    if (threads_ > 0) {
      if (elsewhere_ && elsewhere_(a, transpose_a, b, transpose_b, c)) return;
      return wide_product_into(a, transpose_a, b, transpose_b, threads_, c);
    }
    if (transpose_a) {
      c.noalias() = a.transpose() * b;
    } else if (transpose_b) {
      c.noalias() = a * b.transpose();
    } else {
      c.noalias() = a * b;
    }
  }
  Matrix times(const ProductOperand& a, const ProductOperand& b) const {
    Matrix c(a.rows(), b.cols());
    multiply(a, false, b, false, c);
    return c;
  }
  Matrix times_transposed(const ProductOperand& a, const ProductOperand& b) const {
    Matrix c(a.rows(), b.rows());
    multiply(a, false, b, true, c);
    return c;
  }
  // c = a^T b: a gradient, which no other term is added to before.
  void transposed_times(const ProductOperand& a, const ProductOperand& b, ProductResult c) const {
    multiply(a, true, b, false, c);
  }

  // Rows document by document: input id, label (-1: not counted) and position of each.
  void number_rows() {
    const bool diffusion = batch_.objective.kind == ObjectiveKind::kBlockDiffusion;
    for (std::size_t d = 0; d < batch_.documents.size(); ++d) {
      result_.document_row.push_back(rows_);
      const auto document = static_cast<DocumentId>(d);
      const std::int64_t tokens = batch_.documents[d];
      attention_.emplace_back(tokens, batch_.objective);
      for (int copy = 0; copy < (diffusion ? 2 : 1); ++copy) {
        const bool noisy = diffusion && copy == 0;
        for (std::int64_t t = 0; t < tokens; ++t) {
          const bool masked = noisy && is_corrupted(document, t);
          inputs_.push_back(masked ? model_.vocab - 1 : token_id(document, t, model_.vocab));
          std::int64_t label = -1;
          if (!diffusion && t + 1 < tokens) label = token_id(document, t + 1, model_.vocab);
          if (masked) label = token_id(document, t, model_.vocab);
          labels_.push_back(label);
          positions_.push_back(t);
          ++rows_;
        }
      }
    }
    counted_ = std::count_if(labels_.begin(), labels_.end(), [](std::int64_t label) { return label >= 0; });
  }

  void fill_rope_tables() {
    const std::int64_t half = model_.head_dim / 2;
    cosine_.resize(rows_, half);
    sine_.resize(rows_, half);
    for (std::int64_t i = 0; i < rows_; ++i) {
      const auto position = static_cast<double>(positions_[static_cast<std::size_t>(i)]);
      for (std::int64_t p = 0; p < half; ++p) {
        const double angle =
            position / std::pow(10000.0, 2.0 * static_cast<double>(p) / static_cast<double>(model_.head_dim));
        cosine_(i, p) = std::cos(angle);
        sine_(i, p) = std::sin(angle);
      }
    }
  }

  // Multiplies each head's pairs by the rotation (sign 1) or its transpose (sign -1).
  void rotate(Matrix& x, double sign) const {
    const std::int64_t half = model_.head_dim / 2;
    by_rows(x.rows(), threads_, [&](std::int64_t top, std::int64_t rows) {
      const auto cosine = cosine_.middleRows(top, rows), sine = sine_.middleRows(top, rows);
      for (std::int64_t first = 0; first < x.cols(); first += model_.head_dim) {
        const Matrix a = x.block(top, first, rows, half);
        const Matrix b = x.block(top, first + half, rows, half);
        x.block(top, first, rows, half) = a.cwiseProduct(cosine) - sign * b.cwiseProduct(sine);
        x.block(top, first + half, rows, half) = b.cwiseProduct(cosine) + sign * a.cwiseProduct(sine);
      }
    });
  }

  Matrix embed() const {
    const ConstMatrix table(parameters_.embedding.data(), model_.vocab, model_.hidden);
    Matrix x(rows_, model_.hidden);
    for (std::int64_t i = 0; i < rows_; ++i) x.row(i) = table.row(inputs_[static_cast<std::size_t>(i)]);
    return x;
  }

  Weights weights(std::size_t layer) const { return {model_, parameters_.layers[layer].data(), layout_}; }

  Matrix forward_layer(const Matrix& x, std::size_t layer) {
    const Weights w = weights(layer);
    LayerState& state = states_[layer];
    state.attention_input = state.attention_norm.forward(x, w.attention_norm, threads_);
    const Matrix qkv = times(state.attention_input, w.qkv);
    state.q = qkv.leftCols(model_.q_width());
    state.k = qkv.middleCols(model_.q_width(), model_.kv_width());
    state.v = qkv.rightCols(model_.kv_width());
    rotate(state.q, 1.0);
    rotate(state.k, 1.0);
    state.o.resize(rows_, model_.q_width());
    state.lse.resize(rows_, model_.q_heads);
    for (std::size_t d = 0; d < attention_.size(); ++d) {
      attention_[d].forward(model_, result_.document_row[d], state.q, state.k, state.v, state.o, state.lse, threads_);
    }
    const Matrix x1 = x + times(state.o, w.output);
    state.ffn_input = state.ffn_norm.forward(x1, w.ffn_norm, threads_);
    state.gate_up = times(state.ffn_input, w.gate_up);
    state.activated.resize(rows_, model_.ffn);
    by_rows(rows_, threads_, [&](std::int64_t first, std::int64_t rows) {
      const auto part = state.gate_up.middleRows(first, rows);
      const auto gate = part.leftCols(model_.ffn).array();
      state.activated.middleRows(first, rows) =
          (gate * (1.0 + (-gate).exp()).inverse() * part.rightCols(model_.ffn).array()).matrix();
    });
    return x1 + times(state.activated, w.down);
  }

  Matrix backward_layer(const Matrix& dy, std::size_t layer) {
    const Weights w = weights(layer);
    // Only now: by this time the layers behind have given their states back, and 8 bytes a parameter count.
    result_.layer_grads[layer].assign(parameters_.layers[layer].size(), 0.0);
    Gradients g(model_, result_.layer_grads[layer].data(), layout_);
    const LayerState& state = states_[layer];
    transposed_times(state.activated, dy, g.down);
    const Matrix d_activated = times_transposed(dy, w.down);
    Matrix d_gate_up(rows_, 2 * model_.ffn);
    by_rows(rows_, threads_, [&](std::int64_t first, std::int64_t rows) {
      const auto part = state.gate_up.middleRows(first, rows);
      const auto gate = part.leftCols(model_.ffn).array();
      const auto dy_part = d_activated.middleRows(first, rows).array();
      const Eigen::ArrayXXd sigmoid = (1.0 + (-gate).exp()).inverse();
      auto out = d_gate_up.middleRows(first, rows);
      out.leftCols(model_.ffn) =
          (dy_part * part.rightCols(model_.ffn).array() * (sigmoid + gate * sigmoid * (1.0 - sigmoid))).matrix();
      out.rightCols(model_.ffn) = (dy_part * gate * sigmoid).matrix();
    });
    transposed_times(state.ffn_input, d_gate_up, g.gate_up);
    const Matrix dx1 =
        dy + state.ffn_norm.backward(times_transposed(d_gate_up, w.gate_up), w.ffn_norm, g.ffn_norm, threads_);
    transposed_times(state.o, dx1, g.output);
    const Matrix d_o = times_transposed(dx1, w.output);

    ReferenceLayer& out = result_.layers[layer];
    out.q_grad = Matrix::Zero(rows_, model_.q_width());
    out.k_grad = Matrix::Zero(rows_, model_.kv_width());
    out.v_grad = Matrix::Zero(rows_, model_.kv_width());
    for (std::size_t d = 0; d < attention_.size(); ++d) {
      attention_[d].backward(model_, result_.document_row[d], {state.q, state.k, state.v, state.o, state.lse, d_o},
                             out.q_grad, out.k_grad, out.v_grad, threads_);
    }
    rotate(out.q_grad, -1.0);
    rotate(out.k_grad, -1.0);
    Matrix d_qkv(rows_, model_.qkv_width());
    d_qkv << out.q_grad, out.k_grad, out.v_grad;
    transposed_times(state.attention_input, d_qkv, g.qkv);
    const Matrix dx = dx1 + state.attention_norm.backward(times_transposed(d_qkv, w.qkv), w.attention_norm,
                                                          g.attention_norm, threads_);
    out.o = std::move(states_[layer].o);
    states_[layer] = LayerState{};
    return dx;
  }

  // Final norm, logits and loss; returns d loss / dx of the last layer's output. All rows pass; only counted rows
  // matter.
  Matrix head(const Matrix& x, bool backward_too) {
    Norm norm;
    const ConstRow weight(parameters_.head.data(), model_.hidden);
    const Matrix y = norm.forward(x, weight, threads_);
    const ConstMatrix table(parameters_.embedding.data(), model_.vocab, model_.hidden);
    const double* untied = parameters_.head.data() + model_.hidden;
    Matrix logits = model_.tied_embeddings ? times_transposed(y, table)
                                           : times(y, ConstMatrix(untied, model_.hidden, model_.vocab));
    const double share = counted_ > 0 ? 1.0 / static_cast<double>(counted_) : 0.0;
    std::vector<double> losses(static_cast<std::size_t>(rows_), 0.0);
    share_out(rows_, std::max(1, threads_), [&](std::int64_t i) {
      const std::int64_t label = labels_[static_cast<std::size_t>(i)];
      if (label < 0) {
        logits.row(i).setZero();
        return;
      }
      const double top = logits.row(i).maxCoeff();
      const double log_sum = top + std::log((logits.row(i).array() - top).exp().sum());
      losses[static_cast<std::size_t>(i)] = (log_sum - logits(i, label)) * share;
      logits.row(i) = ((logits.row(i).array() - log_sum).exp() * share).matrix();
      logits(i, label) -= share;
    });
    for (const double loss : losses) result_.loss += loss;
    if (!backward_too) return {};
    Matrix dy;
    if (model_.tied_embeddings) {
      transposed_times(logits, y, Eigen::Map<Matrix>(result_.embedding_grads.data(), model_.vocab, model_.hidden));
      dy = times(logits, table);
    } else {
      transposed_times(y, logits,
                       Eigen::Map<Matrix>(result_.head_grads.data() + model_.hidden, model_.hidden, model_.vocab));
      dy = times_transposed(logits, ConstMatrix(untied, model_.hidden, model_.vocab));
    }
    return norm.backward(dy, weight, Eigen::Map<Eigen::RowVectorXd>(result_.head_grads.data(), model_.hidden),
                         threads_);
  }

  const ModelShape& model_;
  const Batch& batch_;
  const ParameterValues& parameters_;
  int threads_;
  const ProductElsewhere& elsewhere_;
  LayerParameters layout_;
  std::int64_t rows_ = 0, counted_ = 0;
  std::vector<std::int64_t> inputs_, labels_, positions_;  // by row
  std::vector<DocumentAttention> attention_;               // by document
  Matrix cosine_, sine_;                                   // rows x head_dim / 2
  std::vector<LayerState> states_;
  Reference result_;
};

}  // namespace

std::int64_t Reference::row(const Batch& batch, DocumentId document, TokenView view, std::int64_t position) const {
  const auto d = static_cast<std::size_t>(document);
  const bool second = batch.objective.kind == ObjectiveKind::kBlockDiffusion && view == TokenView::kClean;
  return document_row[d] + (second ? batch.documents[d] : 0) + position;
}

ParameterValues make_parameters(const ModelShape& model, std::uint64_t seed) {
  ParameterValues values;
  values.layers.reserve(static_cast<std::size_t>(model.layers));
  values.embedding = unit_values(model, UnitKind::kEmbedding, 0, seed);
  for (std::int64_t l = 0; l < model.layers; ++l)
    values.layers.push_back(unit_values(model, UnitKind::kLayer, l, seed));
  values.head = unit_values(model, UnitKind::kHead, 0, seed);
  return values;
}

Reference reference_step(const ModelShape& model, const Batch& batch, const ParameterValues& parameters, int threads,
                         const ProductElsewhere& elsewhere) {
  return Step(model, batch, parameters, threads, elsewhere).run(true);
}

double reference_loss(const ModelShape& model, const Batch& batch, const ParameterValues& parameters) {
  return Step(model, batch, parameters, 0, {}).run(false).loss;
}

// The head passes all rows here, noisy and clean. 6 = forward, and twice that backward, two FLOPs a multiply-add;
// attention 12 likewise.
double reference_flops(const ModelShape& model, const Batch& batch) {
  const double rows = static_cast<double>(batch_rows(batch));
  const double pairs = static_cast<double>(batch_pairs(batch));
  return 6.0 * static_cast<double>(matmul_parameters(model)) * rows +
         12.0 * static_cast<double>(model.layers * model.q_width()) * pairs;
}

}  // namespace longhaul
