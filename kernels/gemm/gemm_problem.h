// What a matrix product is, without a library: C (=, +=) op(A) op(B), row-major, as the schedule's Gemm op has it.
//
// op(A) is m x k, op(B) is k x n, C is m x n. With W stored as (outputs x inputs), the three passes of a linear layer:
//   forward          Y[m x n]  = X[m x k]   W[n x k]^T    transpose_b
//   backward-input   dX[m x n] = dY[m x k]  W[k x n]      neither
//   backward-weight  dW[m x n] = dY[k x m]^T X[k x n]     transpose_a     (k = tokens)
#pragma once

#include <compare>
#include <cstdint>

namespace longhaul {

enum class GemmOutput : std::uint8_t { kBf16, kFp32 };

struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  // Elements between two rows of A, B, C as stored: at least the row's length (a view of some columns has more).
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  GemmOutput output = GemmOutput::kBf16;
  bool accumulate = false;  // C += instead of C =

  std::int64_t a_rows() const { return transpose_a ? k : m; }
  std::int64_t a_columns() const { return transpose_a ? m : k; }
  std::int64_t b_rows() const { return transpose_b ? n : k; }
  std::int64_t b_columns() const { return transpose_b ? k : n; }
  // All sizes >= 1 and no stride shorter than its row.
  bool valid() const {
    return m >= 1 && n >= 1 && k >= 1 && a_stride >= a_columns() && b_stride >= b_columns() && c_stride >= n;
  }

  auto operator<=>(const GemmProblem&) const = default;
};

// The product of tightly stored matrices.
inline GemmProblem tight_gemm(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b) {
  GemmProblem problem{.m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b};
  problem.a_stride = problem.a_columns();
  problem.b_stride = problem.b_columns();
  problem.c_stride = n;
  return problem;
}
inline GemmProblem forward_gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  return tight_gemm(m, n, k, false, true);
}
inline GemmProblem backward_input_gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  return tight_gemm(m, n, k, false, false);
}
inline GemmProblem backward_weight_gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  return tight_gemm(m, n, k, true, false);
}

}  // namespace longhaul
