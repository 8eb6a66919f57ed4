#include "validate/device/row_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/core/mix.h"
#include "validate/cpu/reference_attention.h"
#include "validate/cpu/wide_product.h"
#include "validate/device/kernel_call.h"

namespace longhaul {
namespace {

std::int64_t position_of(const RowDocument& document, std::int64_t row) {
  return (row - document.first_row) % document.tokens;
}

double dot(const double* a, const Bf16* b, std::int64_t dim) {
  double sum = 0;
  for (std::int64_t c = 0; c < dim; ++c) sum += a[c] * static_cast<double>(to_float(b[c]));
  return sum;
}

// Turns the gradient of a row that RoPE has turned back to that of the projection's output.
void turn_back(std::vector<double>& gradient, std::int64_t dim, std::int64_t position) {
  const std::int64_t half = dim / 2;
  for (std::int64_t p = 0; p < half; ++p) {
    const double frequency = std::pow(kRopeBase, -2.0 * static_cast<double>(p) / static_cast<double>(dim));
    const double cosine = std::cos(static_cast<double>(position) * frequency);
    const double sine = std::sin(static_cast<double>(position) * frequency);
    for (std::size_t head = 0; head < gradient.size(); head += static_cast<std::size_t>(dim)) {
      double& a = gradient[head + static_cast<std::size_t>(p)];
      double& b = gradient[head + static_cast<std::size_t>(p + half)];
      const double turned = a * cosine + b * sine;
      b = b * cosine - a * sine;
      a = turned;
    }
  }
}

// Columns [column, column + width) of rows [first, first + count), into the top of `values`.
void load_columns(const RowView& table, std::int64_t first, std::int64_t count, std::int64_t column, std::int64_t width,
                  Matrix& values) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Bf16* from = table.row(first + i) + column;
    for (std::int64_t c = 0; c < width; ++c) values(i, c) = to_float(from[c]);
  }
}

// Sampled rows of one document, at most kBatchRows of them.
struct RowBatch {
  RowDocument document;
  std::vector<std::size_t> indices;  // into the list of rows
  std::int64_t keys = 0;             // of the document's first rows: none behind them is seen by any of the rows
};
constexpr std::size_t kBatchRows = 32;

std::vector<RowBatch> batches_of(const Batch& batch, const std::vector<std::int64_t>& rows) {
  std::vector<RowBatch> batches;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RowDocument document = document_of_row(batch, rows[i]);
    if (batches.empty() || batches.back().document.first_row != document.first_row ||
        batches.back().indices.size() == kBatchRows) {
      batches.push_back({document, {}});
    }
    RowBatch& of = batches.back();
    of.indices.push_back(i);
    std::int64_t keys = document.rows;
    const std::int64_t row = rows[i] - document.first_row;
    while (keys > of.keys && !mask_allows(document.tokens, batch.objective, row, keys - 1)) --keys;
    of.keys = keys;
  }
  return batches;
}

constexpr std::int64_t kBlockKeys = 512;

// What one thread computes with: its pages are touched once, not once a block.
struct Scratch {
  Matrix keys, values, scores, gradient, part;
  Eigen::Matrix<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> sees;  // row of the batch x key of the block
};

// What reference_row says of the query heads of one key head, as matrix products over blocks of keys. Two passes: O by
// sums that shrink whenever a larger score comes (FlashAttention-2, section 3.1), then dQ from P = exp(score - LSE).
// The rows of a head follow those of the one before.
class RowBatchReference {
 public:
  RowBatchReference(const ModelShape& model, const Batch& batch, const LayerRows& table, const RowBatch& of,
                    const std::vector<std::int64_t>& rows, std::int64_t kv_head, Scratch& scratch)
      : model_(model), batch_(batch), table_(table), of_(of), rows_(rows), kv_head_(kv_head), scratch_(scratch) {}

  void run(std::vector<RowResult>& results) {
    const std::int64_t dim = model_.head_dim;
    const std::int64_t sharing = model_.q_heads / model_.kv_heads, first_head = kv_head_ * sharing;
    Matrix q(count() * sharing, dim), d_o(count() * sharing, dim);
    for (std::int64_t r = 0; r < q.rows(); ++r) {
      const std::int64_t row = rows_[of_.indices[static_cast<std::size_t>(r % count())]];
      const Bf16* from_q = table_.qkv.row(row) + (first_head + r / count()) * dim;
      const Bf16* from_d_o = table_.d_o.row(row) + (first_head + r / count()) * dim;
      for (std::int64_t c = 0; c < dim; ++c) {
        q(r, c) = to_float(from_q[c]) / std::sqrt(static_cast<double>(dim));
        d_o(r, c) = to_float(from_d_o[c]);
      }
    }
    Eigen::VectorXd lse(q.rows());
    const Matrix o = forward(q, lse);
    const Matrix dq = backward(q, d_o, o, lse);
    for (std::int64_t r = 0; r < q.rows(); ++r) {
      RowResult& result = results[of_.indices[static_cast<std::size_t>(r % count())]];
      const std::int64_t head = first_head + r / count();
      result.lse[static_cast<std::size_t>(head)] = lse(r);
      for (std::int64_t c = 0; c < dim; ++c) {
        result.o[static_cast<std::size_t>(head * dim + c)] = o(r, c);
        result.dq[static_cast<std::size_t>(head * dim + c)] = dq(r, c);
      }
    }
  }

 private:
  std::int64_t count() const { return static_cast<std::int64_t>(of_.indices.size()); }

  Matrix forward(const Matrix& q, Eigen::VectorXd& lse) {
    Matrix o = Matrix::Zero(q.rows(), q.cols());
    Eigen::VectorXd top = Eigen::VectorXd::Constant(q.rows(), -std::numeric_limits<double>::infinity());
    Eigen::VectorXd sum = Eigen::VectorXd::Zero(q.rows());
    over_keys(q, [&] {
      Matrix& p = scratch_.scores;
      for (std::int64_t r = 0; r < p.rows(); ++r) {
        const double block_top = p.row(r).maxCoeff();
        if (block_top > top(r)) {
          const double shrink = std::exp(top(r) - block_top);
          o.row(r) *= shrink;
          sum(r) *= shrink;
          top(r) = block_top;
        }
        // A row that has seen no key yet has none in this block either: its P stays zero.
        if (std::isinf(top(r))) {
          p.row(r).setZero();
          continue;
        }
        p.row(r) = (p.row(r).array() - top(r)).exp().matrix();
        sum(r) += p.row(r).sum();
      }
      scratch_.part.resize(o.rows(), o.cols());
      wide_product_into(p, false, scratch_.values, false, 1, scratch_.part);
      o += scratch_.part;
    });
    for (std::int64_t r = 0; r < o.rows(); ++r) {
      o.row(r) /= sum(r);
      lse(r) = top(r) + std::log(sum(r));
    }
    return o;
  }

  Matrix backward(const Matrix& q, const Matrix& d_o, const Matrix& o, const Eigen::VectorXd& lse) {
    const Eigen::VectorXd delta = o.cwiseProduct(d_o).rowwise().sum();
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.cols()));
    Matrix dq = Matrix::Zero(q.rows(), q.cols());
    over_keys(q, [&] {
      Matrix& ds = scratch_.gradient;
      ds.resize(q.rows(), scratch_.keys.rows());
      wide_product_into(d_o, false, scratch_.values, true, 1, ds);
      for (std::int64_t r = 0; r < ds.rows(); ++r) {
        ds.row(r).array() = (ds.row(r).array() - delta(r)) * (scratch_.scores.row(r).array() - lse(r)).exp() * scale;
      }
      scratch_.part.resize(q.rows(), q.cols());
      wide_product_into(ds, false, scratch_.keys, false, 1, scratch_.part);
      dq += scratch_.part;
    });
    return dq;
  }

  // Calls body() for blocks of the document's keys that any of the rows sees: keys, values and masked scores in the
  // scratch.
  template <class Body>
  void over_keys(const Matrix& q, const Body& body) {
    const std::int64_t k_column = model_.q_width() + kv_head_ * model_.head_dim;
    for (std::int64_t first = 0; first < of_.keys; first += kBlockKeys) {
      const std::int64_t keys = std::min(kBlockKeys, of_.keys - first);
      if (!look(first, keys)) continue;
      scratch_.keys.resize(keys, model_.head_dim);
      scratch_.values.resize(keys, model_.head_dim);
      load_columns(table_.qkv, of_.document.first_row + first, keys, k_column, model_.head_dim, scratch_.keys);
      load_columns(table_.qkv, of_.document.first_row + first, keys, k_column + model_.kv_width(), model_.head_dim,
                   scratch_.values);
      scratch_.scores.resize(q.rows(), keys);
      wide_product_into(q, false, scratch_.keys, true, 1, scratch_.scores);
      for (std::int64_t r = 0; r < q.rows(); ++r) {
        for (std::int64_t key = 0; key < keys; ++key) {
          if (!scratch_.sees(r % count(), key)) scratch_.scores(r, key) = -std::numeric_limits<double>::infinity();
        }
      }
      body();
    }
  }

  // Which rows of the batch see which keys of a block; false where none sees any.
  bool look(std::int64_t first, std::int64_t keys) {
    scratch_.sees.resize(count(), keys);
    for (std::int64_t i = 0; i < count(); ++i) {
      const std::int64_t row = rows_[of_.indices[static_cast<std::size_t>(i)]] - of_.document.first_row;
      for (std::int64_t key = 0; key < keys; ++key) {
        scratch_.sees(i, key) = mask_allows(of_.document.tokens, batch_.objective, row, first + key);
      }
    }
    return scratch_.sees.any();
  }

  const ModelShape& model_;
  const Batch& batch_;
  const LayerRows& table_;
  const RowBatch& of_;
  const std::vector<std::int64_t>& rows_;
  std::int64_t kv_head_;
  Scratch& scratch_;
};

}  // namespace

RowDocument document_of_row(const Batch& batch, std::int64_t row) {
  const RowOrder order(batch);
  const auto after = std::upper_bound(order.document_row.begin(), order.document_row.end(), row);
  const auto document = static_cast<std::size_t>(after - order.document_row.begin() - 1);
  RowDocument of;
  of.first_row = order.document_row[document];
  of.tokens = batch.documents[document];
  of.rows = order.noisy ? 2 * of.tokens : of.tokens;
  return of;
}

void turn_back_rows(const ModelShape& model, const Batch& batch, const std::vector<std::int64_t>& rows,
                    std::vector<RowResult>& results) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    turn_back(results[i].dq, model.head_dim, position_of(document_of_row(batch, rows[i]), rows[i]));
  }
}

LayerRows layer_rows(const Schedule& schedule, const StepOutcome& outcome, std::int16_t layer) {
  return {rows_of(schedule, outcome, "qkv", layer), rows_of(schedule, outcome, "attention_output", layer),
          rows_of(schedule, outcome, "attention_output_grad", layer), rows_of(schedule, outcome, "qkv_grad", layer),
          gather_lse(schedule, outcome, layer)};
}

// Two passes over the keys of each head: scores and their log-sum-exp; then O and, with delta = sum of O dO,
// dQ = sum over keys of P (dO V - delta) K scale (FlashAttention-2, section 2.2).
RowResult reference_row(const ModelShape& model, const Batch& batch, const LayerRows& rows, std::int64_t row) {
  const RowDocument document = document_of_row(batch, row);
  const std::int64_t dim = model.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  std::vector<std::int64_t> keys;
  for (std::int64_t key = 0; key < document.rows; ++key) {
    if (mask_allows(document.tokens, batch.objective, row - document.first_row, key)) {
      keys.push_back(document.first_row + key);
    }
  }
  RowResult result;
  result.o.assign(static_cast<std::size_t>(model.q_width()), 0.0);
  result.dq = result.o;
  std::vector<double> scores(keys.size()), q(static_cast<std::size_t>(dim)), d_o(static_cast<std::size_t>(dim));
  for (std::int64_t head = 0; head < model.q_heads; ++head) {
    const std::int64_t kv_head = head / (model.q_heads / model.kv_heads);
    const std::int64_t k_column = model.q_width() + kv_head * dim;
    const std::int64_t v_column = k_column + model.kv_width();
    for (std::int64_t c = 0; c < dim; ++c) {
      q[static_cast<std::size_t>(c)] = to_float(rows.qkv.row(row)[head * dim + c]);
      d_o[static_cast<std::size_t>(c)] = to_float(rows.d_o.row(row)[head * dim + c]);
    }
    double top = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      scores[i] = scale * dot(q.data(), rows.qkv.row(keys[i]) + k_column, dim);
      top = std::max(top, scores[i]);
    }
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - top);
    const double lse = top + std::log(sum);
    result.lse.push_back(lse);
    double* o = result.o.data() + head * dim;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const double p = std::exp(scores[i] - lse);
      const Bf16* v = rows.qkv.row(keys[i]) + v_column;
      for (std::int64_t c = 0; c < dim; ++c) o[c] += p * static_cast<double>(to_float(v[c]));
    }
    double delta = 0;
    for (std::int64_t c = 0; c < dim; ++c) delta += o[c] * d_o[static_cast<std::size_t>(c)];
    double* dq = result.dq.data() + head * dim;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const double p = std::exp(scores[i] - lse);
      const double ds = p * (dot(d_o.data(), rows.qkv.row(keys[i]) + v_column, dim) - delta) * scale;
      const Bf16* k = rows.qkv.row(keys[i]) + k_column;
      for (std::int64_t c = 0; c < dim; ++c) dq[c] += ds * static_cast<double>(to_float(k[c]));
    }
  }
  turn_back(result.dq, dim, position_of(document, row));
  return result;
}

std::vector<RowResult> reference_rows(const ModelShape& model, const Batch& batch, const LayerRows& table,
                                      const std::vector<std::int64_t>& rows, int threads) {
  RowResult empty;
  empty.o.assign(static_cast<std::size_t>(model.q_width()), 0.0);
  empty.dq = empty.o;
  empty.lse.assign(static_cast<std::size_t>(model.q_heads), 0.0);
  std::vector<RowResult> results(rows.size(), empty);
  const std::vector<RowBatch> batches = batches_of(batch, rows);
  const auto count = static_cast<std::int64_t>(batches.size());
  share_out(count * model.kv_heads, threads, [&](std::int64_t item) {
    const RowBatch& of = batches[static_cast<std::size_t>(item / model.kv_heads)];
    thread_local Scratch scratch;
    RowBatchReference(model, batch, table, of, rows, item % model.kv_heads, scratch).run(results);
  });
  turn_back_rows(model, batch, rows, results);
  return results;
}

}  // namespace longhaul
