// Compiled with -mavx2 -mfma. Eigen gets another name here: its templates, inlined for these instructions, would
// otherwise be merged by the linker with those of the rest of the program and run on CPUs without them.
#define Eigen EigenForAvx2
// Packed operands of a block of 512 x 512 x 128 on the stack: from the heap each product would touch fresh pages.
#define EIGEN_STACK_ALLOCATION_LIMIT (1 << 20)
#include "validate/cpu/wide_product_avx2.h"

#include <Eigen/Core>

namespace longhaul {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Input = Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>>;
using Result = Eigen::Map<RowMajor, 0, Eigen::OuterStride<>>;

Input map_of(const DoubleBlock& of) { return {of.data, of.rows, of.columns, Eigen::OuterStride<>(of.stride)}; }

}  // namespace

void product_avx2(const DoubleBlock& a, const DoubleBlock& b, double* c, std::int64_t c_stride) {
  const Input left = map_of(a), right = map_of(b);
  const std::int64_t rows = a.transposed ? a.columns : a.rows;
  const std::int64_t columns = b.transposed ? b.rows : b.columns;
  Result result(c, rows, columns, Eigen::OuterStride<>(c_stride));
  if (a.transposed && b.transposed) result.noalias() = left.transpose() * right.transpose();
  if (a.transposed && !b.transposed) result.noalias() = left.transpose() * right;
  if (!a.transposed && b.transposed) result.noalias() = left * right.transpose();
  if (!a.transposed && !b.transposed) result.noalias() = left * right;
}

}  // namespace longhaul
