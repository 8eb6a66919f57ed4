// Attention over pieces: a softmax over all keys that the pieces of a query row name, scale 1 / sqrt(head_dim), natural
// log LSE; grouped queries share the key head of index q_head / (q_heads / kv_heads).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "validate/cpu/attention_kernel.h"
#include "validate/cpu/ops.h"

namespace longhaul {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

// Key and value views of one expanded operand, and in backward their gradients as they are summed.
struct Source {
  Region key, value;
  std::vector<RowToken> tokens;  // by row of the key view
  Region key_gradient, value_gradient;
  Matrix d_key, d_value;
};

struct Attention {
  const Op* op = nullptr;
  std::int64_t q_heads = 0, group = 1, dim = 0, rows = 0;
  double scale = 1;
  std::vector<Source> sources;
  const std::vector<Piece>* pieces = nullptr;
  std::vector<std::vector<KeyRange>> visible;  // by piece, query
};

// Rows begin .. begin + count - 1 hold the tokens that `claimed` gives for them, of one document and view; returns the
// first row's token.
template <class Claimed>
RowToken require_tokens(const Machine& machine, const OpInstance& at, const std::vector<RowToken>& tokens,
                        std::int64_t begin, std::int64_t count, const Claimed& claimed, const char* what) {
  if (begin < 0 || begin + count > static_cast<std::int64_t>(tokens.size())) {
    machine.fail(at, fmt::format("a piece names {} rows {} + {} of {}", what, begin, count, tokens.size()));
  }
  const RowToken head = tokens[static_cast<std::size_t>(begin)];
  for (std::int64_t i = 0; i < count; ++i) {
    const RowToken& token = tokens[static_cast<std::size_t>(begin + i)];
    if (token.document < 0 || token.document != head.document || token.view != head.view ||
        token.position != claimed(i)) {
      machine.fail(at, fmt::format("a piece claims that {} row {} is token {} of document {}; it is token {} of {}",
                                   what, begin + i, claimed(i), head.document, token.position, token.document));
    }
  }
  return head;
}

void check_piece(const Machine& machine, const OpInstance& at, const Piece& piece, const std::vector<RowToken>& queries,
                 const Attention& attention) {
  if (piece.operand < 0 || static_cast<std::size_t>(piece.operand) >= attention.sources.size()) {
    machine.fail(at, fmt::format("a piece names operand {} of {}", piece.operand, attention.sources.size()));
  }
  const Source& source = attention.sources[static_cast<std::size_t>(piece.operand)];
  const RowToken q = require_tokens(
      machine, at, queries, piece.q_row, piece.q_count, [&](std::int64_t i) { return piece.query_token(i); }, "query");
  const RowToken k = require_tokens(
      machine, at, source.tokens, piece.k_row, piece.k_count, [&](std::int64_t i) { return piece.key_token(i); },
      "key");
  if (q.document != k.document) {
    machine.fail(at, fmt::format("a piece pairs documents {} and {}", q.document, k.document));
  }
  if (q.view == TokenView::kClean && k.view == TokenView::kNoisy) {
    machine.fail(at, fmt::format("a piece lets clean rows of document {} see noisy ones", q.document));
  }
  machine.require_written(at, source.key, piece.k_row, piece.k_count);
  machine.require_written(at, source.value, piece.k_row, piece.k_count);
}

Attention bind(Machine& machine, const OpInstance& at, const Region& q) {
  const Op& op = *at.op;
  Attention attention;
  attention.op = &op;
  attention.q_heads = op.q_heads;
  attention.dim = op.head_dim;
  attention.rows = q.rows();
  const bool heads_fit = op.q_heads > 0 && op.kv_heads > 0 && op.head_dim > 0 && op.q_heads % op.kv_heads == 0 &&
                         op.head_dim <= static_cast<std::int64_t>(kMaxHeadDim);
  if (!heads_fit || q.columns() != op.q_heads * op.head_dim) {
    machine.fail(at, fmt::format("{} query heads, {} key heads of {} do not fit q of {} columns", op.q_heads,
                                 op.kv_heads, op.head_dim, q.columns()));
  }
  attention.group = op.q_heads / op.kv_heads;
  attention.scale = 1.0 / std::sqrt(static_cast<double>(op.head_dim));
  for (const ExpandedOperand& expanded : expand_operands(at)) {
    Source source;
    source.key = machine.region(at, expanded.operand->key, expanded.chunk);
    source.value = machine.region(at, expanded.operand->value, expanded.chunk);
    const bool wide =
        source.key.columns() == op.kv_heads * op.head_dim && source.key.columns() == source.value.columns();
    if (!wide || source.key.rows() != source.value.rows())
      machine.fail(at, "keys and values are not kv_heads x head_dim");
    source.tokens = view_tokens(machine, at, source.key);
    attention.sources.push_back(std::move(source));
  }
  if (op.pieces < 0) machine.fail(at, "attention without a piece list");
  attention.pieces = &at.shape->pieces[static_cast<std::size_t>(op.pieces)]->pieces;
  const std::vector<RowToken> queries = view_tokens(machine, at, q);
  for (const Piece& piece : *attention.pieces) {
    check_piece(machine, at, piece, queries, attention);
    machine.require_written(at, q, piece.q_row, piece.q_count);
    std::vector<KeyRange> ranges(static_cast<std::size_t>(piece.q_count));
    for (std::int64_t i = 0; i < piece.q_count; ++i) ranges[static_cast<std::size_t>(i)] = visible_keys(piece, i);
    attention.visible.push_back(std::move(ranges));
  }
  return attention;
}

// Head `head` of all rows, rows x dim, times `factor`.
std::vector<double> pack_rows(const Region& region, std::int64_t head, std::int64_t dim, double factor) {
  std::vector<double> packed;
  packed.reserve(static_cast<std::size_t>(region.rows() * dim));
  for (std::int64_t i = 0; i < region.rows(); ++i) {
    const double* row = region.row(i) + head * dim;
    for (std::int64_t c = 0; c < dim; ++c) packed.push_back(row[c] * factor);
  }
  return packed;
}

// Head `head` of some rows, transposed and padded: dim x padded_keys(count).
void pack_keys(const Region& region, std::int64_t head, std::int64_t dim, const Piece& piece,
               std::vector<double>& packed) {
  const std::int64_t keys = padded_keys(piece.k_count);
  packed.assign(static_cast<std::size_t>(dim * keys), 0.0);
  for (std::int64_t j = 0; j < piece.k_count; ++j) {
    const double* row = region.row(piece.k_row + j) + head * dim;
    for (std::int64_t c = 0; c < dim; ++c) packed[static_cast<std::size_t>(c * keys + j)] = row[c];
  }
}

void forward_head(const Attention& attention, const Region& q, std::int64_t head, Matrix& o, Matrix& lse) {
  const std::int64_t dim = attention.dim;
  const auto rows = static_cast<std::size_t>(attention.rows);
  const std::vector<double> queries = pack_rows(q, head, dim, attention.scale);
  std::vector<double> top(rows, kLowest), sum(rows, 0.0), weighted(rows * static_cast<std::size_t>(dim), 0.0);
  std::vector<double> keys, values, scores;
  for (std::size_t p = 0; p < attention.pieces->size(); ++p) {
    const Piece& piece = (*attention.pieces)[p];
    const Source& source = attention.sources[static_cast<std::size_t>(piece.operand)];
    pack_keys(source.key, head / attention.group, dim, piece, keys);
    pack_keys(source.value, head / attention.group, dim, piece, values);
    scores.resize(static_cast<std::size_t>(padded_keys(piece.k_count)));
    head_forward({dim, padded_keys(piece.k_count), piece.q_count, attention.visible[p].data(),
                  queries.data() + piece.q_row * dim, keys.data(), values.data(), top.data() + piece.q_row,
                  sum.data() + piece.q_row, weighted.data() + piece.q_row * dim, scores.data()});
  }
  for (std::int64_t i = 0; i < attention.rows; ++i) {
    const double total = sum[static_cast<std::size_t>(i)];
    lse(i, head) = total > 0 ? top[static_cast<std::size_t>(i)] + std::log(total) : kLowest;
    for (std::int64_t c = 0; c < dim; ++c) {
      o(i, head * dim + c) = total > 0 ? weighted[static_cast<std::size_t>(i * dim + c)] / total : 0.0;
    }
  }
}

void forward(Machine& machine, const OpInstance& at) {
  const Op& op = *at.op;
  const Region q = machine.region(at, op.q);
  const Region o_view = machine.region(at, op.o);
  const Region lse_view = machine.region(at, op.lse);
  const Attention attention = bind(machine, at, q);
  if (o_view.access() != Access::kWrite || lse_view.access() != Access::kWrite) {
    machine.fail(at, "attention writes o and lse; it cannot add to them");
  }
  if (o_view.rows() != q.rows() || o_view.columns() != q.columns() || lse_view.rows() != q.rows() ||
      lse_view.columns() != op.q_heads) {
    machine.fail(at, "o or lse do not fit q");
  }
  Matrix o(q.rows(), q.columns());
  Matrix lse(q.rows(), op.q_heads);
  for (std::int64_t head = 0; head < op.q_heads; ++head) forward_head(attention, q, head, o, lse);
  o_view.store(o);
  lse_view.store(lse);
}

// Operands of backward by rows of q.
struct Outer {
  Region q, o, lse, d_o;
  Matrix d_q;
};

void add_transposed(const std::vector<double>& packed, const Piece& piece, std::int64_t column, std::int64_t dim,
                    Matrix& into) {
  const std::int64_t keys = padded_keys(piece.k_count);
  for (std::int64_t j = 0; j < piece.k_count; ++j) {
    for (std::int64_t c = 0; c < dim; ++c) {
      into(piece.k_row + j, column + c) += packed[static_cast<std::size_t>(c * keys + j)];
    }
  }
}

void backward_head(Attention& attention, Outer& outer, std::int64_t head) {
  const std::int64_t dim = attention.dim;
  const auto rows = static_cast<std::size_t>(attention.rows);
  const std::vector<double> q = pack_rows(outer.q, head, dim, attention.scale);
  const std::vector<double> d_o = pack_rows(outer.d_o, head, dim, 1.0);
  std::vector<double> lse(rows), delta(rows, 0.0), d_q(rows * static_cast<std::size_t>(dim), 0.0);
  for (std::int64_t i = 0; i < attention.rows; ++i) {
    const auto row = static_cast<std::size_t>(i);
    lse[row] = outer.lse.row(i)[head];
    for (std::int64_t c = 0; c < dim; ++c) {
      delta[row] += outer.o.row(i)[head * dim + c] * d_o[static_cast<std::size_t>(i * dim + c)];
    }
  }
  std::vector<double> keys, values, d_keys, d_values;
  for (std::size_t p = 0; p < attention.pieces->size(); ++p) {
    const Piece& piece = (*attention.pieces)[p];
    Source& source = attention.sources[static_cast<std::size_t>(piece.operand)];
    const std::int64_t kv_head = head / attention.group;
    pack_keys(source.key, kv_head, dim, piece, keys);
    pack_keys(source.value, kv_head, dim, piece, values);
    d_keys.assign(keys.size(), 0.0);
    d_values.assign(keys.size(), 0.0);
    head_backward({dim, padded_keys(piece.k_count), piece.q_count, attention.visible[p].data(),
                   q.data() + piece.q_row * dim, d_o.data() + piece.q_row * dim, lse.data() + piece.q_row,
                   delta.data() + piece.q_row, keys.data(), values.data(), d_q.data() + piece.q_row * dim,
                   d_keys.data(), d_values.data()});
    add_transposed(d_keys, piece, kv_head * dim, dim, source.d_key);
    add_transposed(d_values, piece, kv_head * dim, dim, source.d_value);
  }
  for (std::int64_t i = 0; i < attention.rows; ++i) {
    for (std::int64_t c = 0; c < dim; ++c) {
      outer.d_q(i, head * dim + c) = d_q[static_cast<std::size_t>(i * dim + c)] * attention.scale;
    }
  }
}

void backward(Machine& machine, const OpInstance& at) {
  const Op& op = *at.op;
  Outer outer;
  outer.q = machine.region(at, op.q);
  outer.o = machine.region(at, op.o);
  outer.lse = machine.region(at, op.lse);
  outer.d_o = machine.region(at, op.o_gradient);
  const Region d_q = machine.checked(at, op.q_gradient);
  Attention attention = bind(machine, at, outer.q);
  const auto fits = [&](const Region& region) {
    return region.rows() == outer.q.rows() && region.columns() == outer.q.columns();
  };
  if (!fits(outer.o) || !fits(outer.d_o) || !fits(d_q) || outer.lse.rows() != outer.q.rows() ||
      outer.lse.columns() != op.q_heads) {
    machine.fail(at, "o, lse or gradients do not fit q");
  }
  for (const Piece& piece : *attention.pieces) {
    machine.require_written(at, outer.o, piece.q_row, piece.q_count);
    machine.require_written(at, outer.lse, piece.q_row, piece.q_count);
    machine.require_written(at, outer.d_o, piece.q_row, piece.q_count);
  }
  const std::vector<ExpandedOperand> expanded = expand_operands(at);
  for (std::size_t i = 0; i < expanded.size(); ++i) {
    Source& source = attention.sources[i];
    const auto gradient = [&](const View& view) {
      Region region = machine.region(at, view, expanded[i].chunk);
      if (region.access() == Access::kAccumulate) machine.require_written(at, region, 0, region.rows());
      if (region.rows() != source.key.rows() || region.columns() != source.key.columns()) {
        machine.fail(at, "a key or value gradient does not fit its operand");
      }
      return region;
    };
    source.key_gradient = gradient(expanded[i].operand->key_gradient);
    source.value_gradient = gradient(expanded[i].operand->value_gradient);
    source.d_key = Matrix::Zero(source.key.rows(), source.key.columns());
    source.d_value = source.d_key;
  }
  outer.d_q = Matrix::Zero(outer.q.rows(), outer.q.columns());
  for (std::int64_t head = 0; head < op.q_heads; ++head) backward_head(attention, outer, head);
  // q was scaled before it met k, so the gradient of k carries the scale already.
  d_q.store(outer.d_q);
  for (const Source& source : attention.sources) {
    source.key_gradient.store(source.d_key);
    source.value_gradient.store(source.d_value);
  }
}

}  // namespace

KeyRange visible_keys(const Piece& piece, std::int64_t query) {
  const std::int64_t token = piece.query_token(query);
  const std::int64_t block = piece.block > 0 ? token / piece.block : 0;
  switch (piece.rule) {
    case MaskRule::kFull:
      return {0, piece.k_count};
    case MaskRule::kCausal:
      return {0, piece.keys_below(token + 1)};
    case MaskRule::kBlockDiagonal:
      return {piece.keys_below(block * piece.block), piece.keys_below((block + 1) * piece.block)};
    case MaskRule::kBlockCausal:
      return {0, piece.keys_below((block + 1) * piece.block)};
    case MaskRule::kBlockCausalStrict:
      return {0, piece.keys_below(block * piece.block)};
  }
  return {};
}

void run_attention(Machine& machine, const OpInstance& at) {
  if (at.op->pass == Pass::kBackward) return backward(machine, at);
  forward(machine, at);
}

}  // namespace longhaul
