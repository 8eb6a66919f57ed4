#include "validate/fit/least_squares.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr int kReweightings = 60;
constexpr double kSmallestError = 0.02;

// The best x >= 0 with rows x = target, rows weighted; columns are scaled to one another first.
Eigen::VectorXd non_negative(const Eigen::MatrixXd& rows, const Eigen::VectorXd& target,
                             const Eigen::VectorXd& weights) {
  const Eigen::Index count = rows.cols();
  const Eigen::VectorXd root = weights.cwiseSqrt();
  Eigen::MatrixXd scaled = root.asDiagonal() * rows;
  const Eigen::VectorXd right = root.cwiseProduct(target);
  Eigen::VectorXd norms = scaled.colwise().norm();
  for (Eigen::Index j = 0; j < count; ++j) {
    if (norms[j] == 0) norms[j] = 1;
    scaled.col(j) /= norms[j];
  }
  const Eigen::MatrixXd gram = scaled.transpose() * scaled;
  const Eigen::VectorXd along = scaled.transpose() * right;
  Eigen::VectorXd best = Eigen::VectorXd::Zero(count);
  double least = 0;  // squared error less that of x = 0
  for (int subset = 1; subset < (1 << count); ++subset) {
    std::vector<Eigen::Index> columns;
    for (Eigen::Index j = 0; j < count; ++j) {
      if ((subset >> j) & 1) columns.push_back(j);
    }
    const Eigen::MatrixXd part = gram(columns, columns);
    const Eigen::VectorXd wanted = along(columns);
    const Eigen::VectorXd x = part.ldlt().solve(wanted);
    if (!x.allFinite() || !(x.array() >= 0).all()) continue;
    const double error = x.dot(part * x) - 2 * x.dot(wanted);
    if (error >= least) continue;
    least = error;
    best.setZero();
    for (std::size_t i = 0; i < columns.size(); ++i) best[columns[i]] = x[static_cast<Eigen::Index>(i)];
  }
  return best.cwiseQuotient(norms);
}

}  // namespace

Terms fit_constants(const std::vector<Observation>& observations, int count, Loss loss) {
  std::vector<int> columns(static_cast<std::size_t>(count));
  std::iota(columns.begin(), columns.end(), 0);
  return fit_constants(observations, columns, loss);
}

Terms fit_constants(const std::vector<Observation>& observations, const std::vector<int>& columns, Loss loss) {
  LH_ASSERT(!observations.empty() && !columns.empty() && columns.size() <= kMaxTerms, "nothing to fit");
  const auto size = static_cast<Eigen::Index>(observations.size());
  const auto count = static_cast<Eigen::Index>(columns.size());
  Eigen::MatrixXd rows(size, count);
  Eigen::VectorXd target(size);
  for (Eigen::Index i = 0; i < size; ++i) {
    const Observation& observation = observations[static_cast<std::size_t>(i)];
    LH_ASSERT(observation.measured > observation.known, "a measured time is longer than what is known of it");
    target[i] = 1 - observation.known / observation.measured;
    for (Eigen::Index j = 0; j < count; ++j) {
      const auto term = static_cast<std::size_t>(columns[static_cast<std::size_t>(j)]);
      rows(i, j) = observation.terms[term] / observation.measured;
    }
  }
  Eigen::VectorXd weights = Eigen::VectorXd::Ones(size);
  Eigen::VectorXd x = non_negative(rows, target, weights);
  for (int i = 0; loss == Loss::kAbsolute && i < kReweightings; ++i) {
    const Eigen::VectorXd errors = rows * x - target;
    weights = errors.cwiseAbs().cwiseMax(kSmallestError).cwiseInverse();
    x = non_negative(rows, target, weights);
  }
  Terms constants{};
  for (Eigen::Index j = 0; j < count; ++j) {
    constants[static_cast<std::size_t>(columns[static_cast<std::size_t>(j)])] = x[j];
  }
  return constants;
}

double predict(const Terms& constants, const Terms& terms) {
  double sum = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) sum += constants[i] * terms[i];
  return sum;
}

std::vector<double> leave_one_out(const std::vector<Observation>& observations, int count, Loss loss) {
  std::vector<double> predicted;
  for (std::size_t left_out = 0; left_out < observations.size(); ++left_out) {
    std::vector<Observation> others = observations;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
    const Observation& left = observations[left_out];
    predicted.push_back(left.known + predict(fit_constants(others, count, loss), left.terms));
  }
  return predicted;
}

}  // namespace longhaul
