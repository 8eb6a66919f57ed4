#include "kernels/gemm/gemm_reference.h"

#include <cmath>
#include <cstddef>
#include <stdexcept>

namespace longhaul {
namespace {

// Elements that a stored matrix spans: the last row may end at its last column.
std::size_t span_of(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return static_cast<std::size_t>((rows - 1) * stride + columns);
}

double element(std::span<const Bf16> matrix, std::int64_t row, std::int64_t column, std::int64_t stride) {
  return static_cast<double>(to_float(matrix[static_cast<std::size_t>(row * stride + column)]));
}

}  // namespace

GemmReference gemm_reference(const GemmProblem& problem, std::span<const Bf16> a, std::span<const Bf16> b) {
  if (!problem.valid()) throw std::invalid_argument("gemm_reference: sizes below 1 or a stride below its row");
  if (a.size() < span_of(problem.a_rows(), problem.a_columns(), problem.a_stride) ||
      b.size() < span_of(problem.b_rows(), problem.b_columns(), problem.b_stride)) {
    throw std::invalid_argument("gemm_reference: an array is shorter than its matrix");
  }
  const auto size = static_cast<std::size_t>(problem.m * problem.n);
  GemmReference result{std::vector<double>(size), std::vector<double>(size)};
  for (std::int64_t i = 0; i < problem.m; ++i) {
    double* value = result.value.data() + i * problem.n;
    double* magnitude = result.magnitude.data() + i * problem.n;
    for (std::int64_t l = 0; l < problem.k; ++l) {
      const double left = problem.transpose_a ? element(a, l, i, problem.a_stride) : element(a, i, l, problem.a_stride);
      for (std::int64_t j = 0; j < problem.n; ++j) {
        const double right =
            problem.transpose_b ? element(b, j, l, problem.b_stride) : element(b, l, j, problem.b_stride);
        value[j] += left * right;
        magnitude[j] += std::abs(left * right);
      }
    }
  }
  return result;
}

}  // namespace longhaul
