// Double-precision matrix products for the reference, on all cores and with the CPU's wide vectors where it has them.
//
// The bits depend on the CPU and not on `threads`: every element is one sum in one order. For references, whose limits
// are far above the last bits; simulated numbers never come from here.
#pragma once

#include <cstdint>
#include <functional>

#include "validate/cpu/storage.h"

namespace longhaul {

using ProductOperand = Eigen::Ref<const Matrix, 0, Eigen::OuterStride<>>;
using ProductResult = Eigen::Ref<Matrix, 0, Eigen::OuterStride<>>;

// c = op(a) op(b), in the caller's memory: fresh pages for every result can cost more than the sums. Sizes must agree.
void wide_product_into(const ProductOperand& a, bool transpose_a, const ProductOperand& b, bool transpose_b,
                       int threads, ProductResult c);

// Something else that multiplies so, a GPU for one; false: this product is not worth its way there, c is untouched.
using ProductElsewhere = std::function<bool(const ProductOperand& a, bool transpose_a, const ProductOperand& b,
                                            bool transpose_b, ProductResult c)>;

// Threads that the machine runs at a time, at least 1.
int hardware_threads();

// Runs body(0) .. body(count - 1), shared out over `threads`.
void share_out(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body);

}  // namespace longhaul
