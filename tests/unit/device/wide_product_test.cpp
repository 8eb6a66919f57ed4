// Matrix products of the reference against Eigen's own, at sizes beside the blocks of a thread.
#include "validate/cpu/wide_product.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace longhaul {
namespace {

Matrix wide_product(const Matrix& a, bool transpose_a, const Matrix& b, bool transpose_b, int threads) {
  Matrix c(transpose_a ? a.cols() : a.rows(), transpose_b ? b.rows() : b.cols());
  wide_product_into(a, transpose_a, b, transpose_b, threads, c);
  return c;
}

TEST(WideProduct, IsTheProduct) {
  for (const std::int64_t rows : {1, 511, 513}) {
    const std::int64_t inner = 97, columns = 700;
    const Matrix a = Matrix::Random(rows, inner), b = Matrix::Random(inner, columns);
    const Matrix at = a.transpose(), bt = b.transpose();
    const Matrix expected = a.lazyProduct(b);
    for (const int threads : {1, 3}) {
      EXPECT_LT((wide_product(a, false, b, false, threads) - expected).cwiseAbs().maxCoeff(), 1e-12);
      EXPECT_LT((wide_product(at, true, b, false, threads) - expected).cwiseAbs().maxCoeff(), 1e-12);
      EXPECT_LT((wide_product(a, false, bt, true, threads) - expected).cwiseAbs().maxCoeff(), 1e-12);
      EXPECT_LT((wide_product(at, true, bt, true, threads) - expected).cwiseAbs().maxCoeff(), 1e-12);
    }
  }
}

TEST(WideProduct, DoesNotDependOnThreads) {
  const Matrix a = Matrix::Random(600, 50), b = Matrix::Random(50, 1100);
  EXPECT_EQ(wide_product(a, false, b, false, 1), wide_product(a, false, b, false, 4));
}

TEST(ShareOut, RunsEachOnceAndPassesOnAFault) {
  std::vector<int> runs(1000, 0);
  share_out(1000, 4, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
  EXPECT_EQ(runs, std::vector<int>(1000, 1));
  EXPECT_THROW(share_out(100, 4,
                         [](std::int64_t i) {
                           if (i == 57) throw std::runtime_error("57");
                         }),
               std::runtime_error);
}

}  // namespace
}  // namespace longhaul
