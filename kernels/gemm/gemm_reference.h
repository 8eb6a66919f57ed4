// The matrix product on the CPU in double precision: what the GPU's result is compared with. Needs no CUDA.
#pragma once

#include <span>
#include <vector>

#include "kernels/common/bf16.h"
#include "kernels/gemm/gemm_problem.h"

namespace longhaul {

struct GemmReference {
  std::vector<double> value;      // op(A) op(B), m x n, tight; accumulation into C is the caller's
  std::vector<double> magnitude;  // sum over k of |a b|: what rounding errors scale with
};

// A and B as the problem stores them (rows x stride elements). Products of two bf16 are exact in double; the sum of k
// of them errs by at most k 2^-53 of `magnitude`. Throws std::invalid_argument for an invalid problem or short arrays.
GemmReference gemm_reference(const GemmProblem& problem, std::span<const Bf16> a, std::span<const Bf16> b);

}  // namespace longhaul
