#include "validate/cpu/wide_product.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "validate/cpu/wide_product_avx2.h"

namespace longhaul {
namespace {

constexpr std::int64_t kBlock = 512;  // rows and columns of what one thread computes at a time

// Rows (or, transposed, columns) [begin, begin + count) of op(of).
DoubleBlock part(const ProductOperand& of, bool transposed, bool of_rows, std::int64_t begin, std::int64_t count) {
  DoubleBlock block{of.data(), of.rows(), of.cols(), of.outerStride(), transposed};
  if (of_rows != transposed) {
    block.data += begin * of.outerStride();
    block.rows = count;
  } else {
    block.data += begin;
    block.columns = count;
  }
  return block;
}

using Strided = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;

void product_plain(const DoubleBlock& a, const DoubleBlock& b, double* c, std::int64_t c_stride) {
  const Strided left(a.data, a.rows, a.columns, Eigen::OuterStride<>(a.stride));
  const Strided right(b.data, b.rows, b.columns, Eigen::OuterStride<>(b.stride));
  const std::int64_t rows = a.transposed ? a.columns : a.rows;
  const std::int64_t columns = b.transposed ? b.rows : b.columns;
  StridedMatrix result(c, rows, columns, Eigen::OuterStride<>(c_stride));
  if (a.transposed && b.transposed) result.noalias() = left.transpose() * right.transpose();
  if (a.transposed && !b.transposed) result.noalias() = left.transpose() * right;
  if (!a.transposed && b.transposed) result.noalias() = left * right.transpose();
  if (!a.transposed && !b.transposed) result.noalias() = left * right;
}

bool has_avx2() {
#ifdef LONGHAUL_AVX2
  static const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return has;
#else
  return false;
#endif
}

void product_block(const DoubleBlock& a, const DoubleBlock& b, double* c, std::int64_t c_stride) {
#ifdef LONGHAUL_AVX2
  if (has_avx2()) return product_avx2(a, b, c, c_stride);
#endif
  product_plain(a, b, c, c_stride);
}

}  // namespace

int hardware_threads() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

void share_out(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body) {
  std::atomic<std::int64_t> next = 0;
  std::exception_ptr fault;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!fault) fault = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> team;
    for (std::int64_t t = 1; t < std::min<std::int64_t>(threads, count); ++t) team.emplace_back(work);
    work();
  }
  if (fault) std::rethrow_exception(fault);
}

void wide_product_into(const ProductOperand& a, bool transpose_a, const ProductOperand& b, bool transpose_b,
                       int threads, ProductResult c) {
  const std::int64_t rows = transpose_a ? a.cols() : a.rows();
  const std::int64_t columns = transpose_b ? b.rows() : b.cols();
  const std::int64_t inner = transpose_a ? a.rows() : a.cols();
  LH_ASSERT(inner == (transpose_b ? b.cols() : b.rows()), "a product over {} and {}", inner,
            transpose_b ? b.cols() : b.rows());
  LH_ASSERT(c.rows() == rows && c.cols() == columns, "a product of {} x {} into {} x {}", rows, columns, c.rows(),
            c.cols());
  const std::int64_t across = ceil_div(columns, kBlock);
  const std::int64_t down = ceil_div(rows, kBlock);
  share_out(across * down, threads, [&](std::int64_t block) {
    const std::int64_t row = block / across * kBlock, column = block % across * kBlock;
    const DoubleBlock left = part(a, transpose_a, true, row, std::min(kBlock, rows - row));
    const DoubleBlock right = part(b, transpose_b, false, column, std::min(kBlock, columns - column));
    product_block(left, right, c.data() + row * c.outerStride() + column, c.outerStride());
  });
}

}  // namespace longhaul
