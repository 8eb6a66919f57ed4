// The product of one block, compiled for CPUs with AVX2 and FMA. Plain pointers alone: nothing that this unit compiles
// may be shared with code for older CPUs.
#pragma once

#include <cstdint>

namespace longhaul {

// Row-major operand: `stride` elements from row to row.
struct DoubleBlock {
  const double* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
  bool transposed = false;
};
// c (rows of op(a) x columns of op(b), stride c_stride) = op(a) op(b).
void product_avx2(const DoubleBlock& a, const DoubleBlock& b, double* c, std::int64_t c_stride);

}  // namespace longhaul
