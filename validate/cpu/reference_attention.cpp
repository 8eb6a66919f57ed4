#include "validate/cpu/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "validate/cpu/wide_product.h"

namespace longhaul {
namespace {

constexpr std::int64_t kTileRows = 128;

}  // namespace

bool mask_allows(std::int64_t tokens, const Objective& objective, std::int64_t query, std::int64_t key) {
  if (objective.kind == ObjectiveKind::kCausalLm) return key <= query;
  const bool noisy_query = query < tokens;
  const bool noisy_key = key < tokens;
  const std::int64_t query_block = (noisy_query ? query : query - tokens) / objective.block_tokens;
  const std::int64_t key_block = (noisy_key ? key : key - tokens) / objective.block_tokens;
  if (noisy_key) return noisy_query && key_block == query_block;
  return noisy_query ? key_block < query_block : key_block <= query_block;
}

DocumentAttention::DocumentAttention(std::int64_t tokens, const Objective& objective) {
  const std::int64_t rows = objective.kind == ObjectiveKind::kBlockDiffusion ? 2 * tokens : tokens;
  for (std::int64_t q = 0; q < rows; q += kTileRows) {
    std::vector<Tile>& band = bands_.emplace_back();
    for (std::int64_t k = 0; k < rows; k += kTileRows) {
      Tile tile{q, std::min(kTileRows, rows - q), k, std::min(kTileRows, rows - k), {}};
      if (objective.kind == ObjectiveKind::kCausalLm && k >= q + tile.q_count) break;
      tile.mask.resize(tile.q_count, tile.k_count);
      std::int64_t allowed = 0;
      for (std::int64_t i = 0; i < tile.q_count; ++i) {
        for (std::int64_t j = 0; j < tile.k_count; ++j) {
          const bool sees = mask_allows(tokens, objective, q + i, k + j);
          allowed += sees ? 1 : 0;
          tile.mask(i, j) = sees ? 0.0 : -std::numeric_limits<double>::infinity();
        }
      }
      if (allowed == 0) continue;
      if (allowed == tile.q_count * tile.k_count) tile.mask.resize(0, 0);
      band.push_back(std::move(tile));
    }
  }
}

void DocumentAttention::forward(const ModelShape& model, std::int64_t first_row, const Matrix& q, const Matrix& k,
                                const Matrix& v, Matrix& o, Matrix& lse, int threads) const {
  share_out(model.q_heads, threads, [&](std::int64_t head) { forward_head(model, first_row, q, k, v, o, lse, head); });
}

void DocumentAttention::forward_head(const ModelShape& model, std::int64_t first_row, const Matrix& q, const Matrix& k,
                                     const Matrix& v, Matrix& o, Matrix& lse, std::int64_t h) const {
  const std::int64_t dim = model.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const std::int64_t kv = h / (model.q_heads / model.kv_heads) * dim;
  for (const std::vector<Tile>& band : bands_) {
    const std::int64_t queries = band.front().q_count;
    const std::int64_t row = first_row + band.front().q_begin;
    const Matrix query = q.block(row, h * dim, queries, dim) * scale;
    std::vector<Matrix> scores;
    Eigen::ArrayXd top = Eigen::ArrayXd::Constant(queries, -std::numeric_limits<double>::infinity());
    for (const Tile& tile : band) {
      Matrix s = query.lazyProduct(Matrix(k.block(first_row + tile.k_begin, kv, tile.k_count, dim).transpose()));
      if (tile.mask.size() > 0) s += tile.mask;
      top = top.max(s.rowwise().maxCoeff().array());
      scores.push_back(std::move(s));
    }
    Eigen::ArrayXd sum = Eigen::ArrayXd::Zero(queries);
    Matrix weighted = Matrix::Zero(queries, dim);
    for (std::size_t t = 0; t < band.size(); ++t) {
      Matrix& p = scores[t];
      p.colwise() -= top.matrix();
      p = p.array().exp().matrix();
      sum += p.rowwise().sum().array();
      weighted.noalias() += p * v.block(first_row + band[t].k_begin, kv, band[t].k_count, dim);
    }
    o.block(row, h * dim, queries, dim) = sum.inverse().matrix().asDiagonal() * weighted;
    lse.block(row, h, queries, 1) = (top + sum.log()).matrix();
  }
}

void DocumentAttention::backward(const ModelShape& model, std::int64_t first_row, const AttentionState& state,
                                 Matrix& d_q, Matrix& d_k, Matrix& d_v, int threads) const {
  // Query heads of one key head add to the same columns: one thread, in order.
  const std::int64_t sharing = model.q_heads / model.kv_heads;
  share_out(model.kv_heads, threads, [&](std::int64_t kv_head) {
    for (std::int64_t head = kv_head * sharing; head < (kv_head + 1) * sharing; ++head) {
      backward_head(model, first_row, state, d_q, d_k, d_v, head);
    }
  });
}

void DocumentAttention::backward_head(const ModelShape& model, std::int64_t first_row, const AttentionState& state,
                                      Matrix& d_q, Matrix& d_k, Matrix& d_v, std::int64_t h) const {
  const std::int64_t dim = model.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const std::int64_t kv = h / (model.q_heads / model.kv_heads) * dim;
  for (const std::vector<Tile>& band : bands_) {
    const std::int64_t queries = band.front().q_count;
    const std::int64_t row = first_row + band.front().q_begin;
    const Matrix query = state.q.block(row, h * dim, queries, dim) * scale;
    const Matrix d_o = state.d_o.block(row, h * dim, queries, dim);
    const Eigen::VectorXd delta = d_o.cwiseProduct(state.o.block(row, h * dim, queries, dim)).rowwise().sum();
    for (const Tile& tile : band) {
      const Matrix key = state.k.block(first_row + tile.k_begin, kv, tile.k_count, dim);
      const Matrix value = state.v.block(first_row + tile.k_begin, kv, tile.k_count, dim);
      Matrix p = query.lazyProduct(Matrix(key.transpose()));
      if (tile.mask.size() > 0) p += tile.mask;
      p.colwise() -= state.lse.block(row, h, queries, 1).col(0);
      p = p.array().exp().matrix();
      d_v.block(first_row + tile.k_begin, kv, tile.k_count, dim).noalias() += p.transpose() * d_o;
      Matrix d_s = d_o.lazyProduct(Matrix(value.transpose()));
      d_s.colwise() -= delta;
      d_s = d_s.cwiseProduct(p) * scale;
      d_q.block(row, h * dim, queries, dim).noalias() += d_s * key;
      d_k.block(first_row + tile.k_begin, kv, tile.k_count, dim).noalias() +=
          d_s.transpose() * state.q.block(row, h * dim, queries, dim);
    }
  }
}

}  // namespace longhaul
