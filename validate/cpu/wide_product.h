// Double-precision matrix products for the reference, on all cores and with the CPU's wide vectors where it has them.
//
// The bits depend on the CPU and not on `threads`: every element is one sum in one order. For references, whose limits
// are far above the last bits; simulated numbers never come from here.
#pragma once

#include <cstdint>
#include <functional>

#include "validate/cpu/storage.h"

namespace longhaul {

// op(a) op(b). Sizes must agree.
Matrix wide_product(const Eigen::Ref<const Matrix, 0, Eigen::OuterStride<>>& a, bool transpose_a,
                    const Eigen::Ref<const Matrix, 0, Eigen::OuterStride<>>& b, bool transpose_b, int threads);

// The same in the caller's memory: for products in a loop, where fresh pages for every result cost more than the sums.
void wide_product_into(const Eigen::Ref<const Matrix, 0, Eigen::OuterStride<>>& a, bool transpose_a,
                       const Eigen::Ref<const Matrix, 0, Eigen::OuterStride<>>& b, bool transpose_b, int threads,
                       Eigen::Ref<Matrix, 0, Eigen::OuterStride<>> c);

// Threads that the machine runs at a time, at least 1.
int hardware_threads();

// Runs body(0) .. body(count - 1), shared out over `threads`.
void share_out(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body);

}  // namespace longhaul
