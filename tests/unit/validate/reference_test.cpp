// The reference against finite differences and against a dense softmax of its own.
#include "validate/cpu/reference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "validate/cpu/parameters.h"
#include "validate/cpu/reference_attention.h"

namespace longhaul {
namespace {

struct Case {
  bool diffusion, tied;
};

ModelShape tiny_model(bool tied) {
  ModelShape model{"tiny", 6, 5, 4, 2, 4, 2, 11, tied, true, true};
  return model;
}

Batch tiny_batch(bool diffusion) {
  Batch batch;
  if (diffusion) batch.objective = {ObjectiveKind::kBlockDiffusion, 2};
  batch.documents = {5, 1, 4};
  batch.sequences = {{{0, 1}, 6}, {{2}, 4}};
  batch.context_tokens = 6;
  return batch;
}

class FiniteDifferences : public ::testing::TestWithParam<Case> {};

// Central differences of step h: error h^2 f'''/6 + 2e-16 f / h, about 1e-9 at h = 1e-5 for f of order 1.
TEST_P(FiniteDifferences, GradientsOfEveryUnit) {
  const ModelShape model = tiny_model(GetParam().tied);
  const Batch batch = tiny_batch(GetParam().diffusion);
  ParameterValues values = make_parameters(model, 7);
  const Reference reference = reference_step(model, batch, values);
  ASSERT_GT(counted_tokens(batch), 0);
  EXPECT_DOUBLE_EQ(reference.loss, reference_loss(model, batch, values));
  EXPECT_GT(reference.loss, 0.5);  // log 11 = 2.4 for a uniform guess
  constexpr double kStep = 1e-5;
  const auto check = [&](std::vector<double>& unit, const std::vector<double>& gradient, const char* name) {
    ASSERT_EQ(unit.size(), gradient.size());
    for (std::size_t i = 0; i < unit.size(); i += 3) {
      const double before = unit[i];
      unit[i] = before + kStep;
      const double up = reference_loss(model, batch, values);
      unit[i] = before - kStep;
      const double down = reference_loss(model, batch, values);
      unit[i] = before;
      EXPECT_NEAR((up - down) / (2 * kStep), gradient[i], 2e-8) << name << " element " << i;
    }
  };
  check(values.embedding, reference.embedding_grads, "embedding");
  for (std::size_t l = 0; l < 2; ++l) check(values.layers[l], reference.layer_grads[l], "layer");
  check(values.head, reference.head_grads, "head");
}

INSTANTIATE_TEST_SUITE_P(Objectives, FiniteDifferences,
                         ::testing::Values(Case{false, false}, Case{false, true}, Case{true, false}, Case{true, true}));

// csbp.md 2.1 in words, for L = 4 and b = 2: rows 0-3 noisy, 4-7 clean.
TEST(ReferenceMask, BlockDiffusionOfFourTokens) {
  const char* rows[8] = {"11000000", "11000000", "00111100", "00111100",
                         "00001100", "00001100", "00001111", "00001111"};
  const Objective objective{ObjectiveKind::kBlockDiffusion, 2};
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) EXPECT_EQ(mask_allows(4, objective, i, j), rows[i][j] == '1') << i << ", " << j;
  }
}

// Long enough for several tiles, with a short last block.
TEST(ReferenceAttention, EqualsNaiveSoftmax) {
  ModelShape model{"heads", 8, 8, 2, 1, 4, 1, 11, false, false, false};
  for (const bool diffusion : {false, true}) {
    const Objective objective{diffusion ? ObjectiveKind::kBlockDiffusion : ObjectiveKind::kCausalLm, diffusion ? 3 : 0};
    const std::int64_t tokens = 151;
    const std::int64_t rows = diffusion ? 2 * tokens : tokens;
    const std::vector<double> random = unit_values(model, UnitKind::kEmbedding, 0, 3);
    const auto fill = [&](std::int64_t columns, std::int64_t salt) {
      Matrix m(rows, columns);
      for (std::int64_t i = 0; i < m.size(); ++i) {
        m.data()[i] = random[static_cast<std::size_t>((i * 31 + salt * 17) % 88)] * 2.0;
      }
      return m;
    };
    const Matrix q = fill(8, 1), k = fill(4, 2), v = fill(4, 3), d_o = fill(8, 4);
    Matrix o(rows, 8), lse(rows, 2);
    const DocumentAttention attention(tokens, objective);
    attention.forward(model, 0, q, k, v, o, lse);
    Matrix dq = Matrix::Zero(rows, 8), dk = Matrix::Zero(rows, 4), dv = Matrix::Zero(rows, 4);
    attention.backward(model, 0, {q, k, v, o, lse, d_o}, dq, dk, dv);
    Matrix edk = Matrix::Zero(rows, 4), edv = Matrix::Zero(rows, 4);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < rows; ++i) {
        Eigen::VectorXd p = Eigen::VectorXd::Zero(rows), d_p(rows);
        for (std::int64_t j = 0; j < rows; ++j) {
          if (mask_allows(tokens, objective, i, j)) p[j] = std::exp(0.5 * q.row(i).segment(4 * h, 4).dot(k.row(j)));
          d_p[j] = d_o.row(i).segment(4 * h, 4).dot(v.row(j));
        }
        EXPECT_NEAR(lse(i, h), std::log(p.sum()), 1e-12);
        p /= p.sum();
        const Eigen::VectorXd d_s = 0.5 * p.cwiseProduct((d_p.array() - p.dot(d_p)).matrix());
        EXPECT_LT((o.row(i).segment(4 * h, 4) - p.transpose() * v).norm(), 1e-12);
        EXPECT_LT((dq.row(i).segment(4 * h, 4) - d_s.transpose() * k).norm(), 1e-12);
        edk += d_s * q.row(i).segment(4 * h, 4);
        edv += p * d_o.row(i).segment(4 * h, 4);
      }
    }
    EXPECT_LT((dk - edk).cwiseAbs().maxCoeff(), 1e-11);
    EXPECT_LT((dv - edv).cwiseAbs().maxCoeff(), 1e-11);
  }
}

}  // namespace
}  // namespace longhaul
