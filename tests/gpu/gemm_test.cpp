// The cuBLASLt wrapper against the CPU reference in double precision. Outputs start as NaN, so that an element that was
// never written fails.

#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/common/stream.h"
#include "kernels/gemm/gemm_reference.h"
#include "tests/gpu/device.h"

namespace longhaul {
namespace {

// Where C starts when the product is added to it.
constexpr float kInitialC = 3.0F;

std::vector<Bf16> small_integers(std::int64_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Bf16> values(static_cast<std::size_t>(size));
  for (Bf16& value : values) value = to_bf16(static_cast<float>(static_cast<int>(random() % 5U) - 2));
  return values;
}

// Uniform in [-1, 1), rounded to bf16.
std::vector<Bf16> reals(std::int64_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Bf16> values(static_cast<std::size_t>(size));
  for (Bf16& value : values) value = to_bf16(static_cast<float>(random()) * 0x1p-31F - 1.0F);
  return values;
}

struct Operands {
  std::vector<Bf16> a, b;
};

Operands operands(const GemmProblem& problem, std::vector<Bf16> (*make)(std::int64_t, std::uint32_t)) {
  return {make(problem.a_rows() * problem.a_stride, 1), make(problem.b_rows() * problem.b_stride, 2)};
}

// C as stored (m rows of c_stride elements), of type T.
template <class T>
std::vector<T> run_on_device(Gemm& gemm, const GemmProblem& problem, const Operands& in, T initial) {
  Stream stream;
  DeviceBuffer<Bf16> a(in.a.size()), b(in.b.size());
  DeviceBuffer<T> c(static_cast<std::size_t>(problem.m * problem.c_stride));
  a.upload(in.a, stream.get());
  b.upload(in.b, stream.get());
  c.poison(stream.get());
  if (problem.accumulate) c.upload(std::vector<T>(c.size(), initial), stream.get());
  gemm.run(problem, a.data(), b.data(), c.data(), stream.get());
  return c.download(stream.get());
}

// C widened to float, of either type.
std::vector<float> result_of(Gemm& gemm, const GemmProblem& problem, const Operands& in) {
  if (problem.output == GemmOutput::kFp32) return run_on_device<float>(gemm, problem, in, kInitialC);
  std::vector<float> widened;
  for (const Bf16 value : run_on_device<Bf16>(gemm, problem, in, to_bf16(kInitialC))) {
    widened.push_back(to_float(value));
  }
  return widened;
}

struct Case {
  const char* name;
  GemmProblem problem;
};

GemmProblem with(GemmProblem problem, GemmOutput output, bool accumulate) {
  problem.output = output;
  problem.accumulate = accumulate;
  return problem;
}

// 16-byte rows, as every layer of the shipped models has, and odd sizes, which cuBLASLt must take too.
std::vector<Case> cases() {
  std::vector<Case> result;
  const auto add = [&](const char* name, const GemmProblem& problem) {
    result.push_back({name, with(problem, GemmOutput::kBf16, false)});
    result.push_back({name, with(problem, GemmOutput::kFp32, false)});
    result.push_back({name, with(problem, GemmOutput::kBf16, true)});
    result.push_back({name, with(problem, GemmOutput::kFp32, true)});
  };
  add("forward", forward_gemm(256, 384, 512));
  add("backward-input", backward_input_gemm(256, 512, 384));
  add("backward-weight", backward_weight_gemm(384, 512, 256));
  add("one row", forward_gemm(1, 256, 64));
  add("long sum, few tiles", backward_weight_gemm(64, 128, 4096));
  add("odd sizes", forward_gemm(67, 33, 129));
  GemmProblem columns = forward_gemm(128, 64, 256);
  columns.a_stride += 64;
  columns.b_stride += 8;
  columns.c_stride += 32;
  add("columns of wider tensors", columns);
  return result;
}

class GemmTest : public GpuTest<testing::TestWithParam<Case>> {
 protected:
  // Compares every element of C; `bound(value, magnitude)` is the error allowed. The padding of rows stays as it was.
  template <class Exact, class Bound>
  void expect_product(const Operands& in, Exact exact, Bound bound) {
    const GemmProblem& problem = GetParam().problem;
    const GemmReference reference = gemm_reference(problem, in.a, in.b);
    Gemm gemm;
    const std::vector<float> result = result_of(gemm, problem, in);
    std::size_t wrong = 0;
    for (std::int64_t i = 0; i < problem.m; ++i) {
      for (std::int64_t j = 0; j < problem.c_stride; ++j) {
        const float got = result[static_cast<std::size_t>(i * problem.c_stride + j)];
        bool right = problem.accumulate ? got == kInitialC : std::isnan(got);
        double want = 0, allowed = 0;
        if (j < problem.n) {
          const auto at = static_cast<std::size_t>(i * problem.n + j);
          const double start = problem.accumulate ? kInitialC : 0.0;
          want = exact(start + reference.value[at]);
          allowed = bound(start + reference.value[at], start + reference.magnitude[at]);
          right = std::abs(got - want) <= allowed;  // false for NaN
        }
        if (!right && ++wrong < 10)
          ADD_FAILURE() << i << "," << j << ": " << got << ", want " << want << " +- " << allowed;
      }
    }
    EXPECT_EQ(wrong, 0U);
  }
};

// Integers -2..2: every partial sum is an integer of at most 4 k + 3 <= 16387 < 2^24, so fp32 accumulation is exact in
// any order and however the tensor core rounds; only the last rounding to bf16 (nearest even) remains. Equality.
TEST_P(GemmTest, IsExactOnSmallIntegers) {
  const bool bf16 = GetParam().problem.output == GemmOutput::kBf16;
  expect_product(
      operands(GetParam().problem, small_integers),
      [&](double value) { return bf16 ? static_cast<double>(to_float(to_bf16(static_cast<float>(value)))) : value; },
      [](double, double) { return 0.0; });
}

// Products of two bf16 are exact in fp32. Each of the k additions errs by at most 2^-23 of the running magnitude
// (truncation; nearest is half of it), and aligning a term to the largest one by as much again: 2 k 2^-23 magnitude,
// one addition more for C. Rounding to bf16 (8 significant bits) adds 2^-8 of the result; when accumulating in bf16,
// cuBLASLt's kernels may round the product before they add C (seen on an H200, CUDA 13.0, 2026-11-29), 2^-8 of it more.
TEST_P(GemmTest, IsWithinTheRoundingBoundOnReals) {
  const GemmProblem& problem = GetParam().problem;
  const double sum = 2.0 * static_cast<double>(problem.k + 1) * 0x1p-23;
  const double last = problem.output == GemmOutput::kBf16 ? 0x1p-8 : 0.0;
  expect_product(
      operands(problem, reals), [](double value) { return value; },
      [&](double value, double magnitude) {
        const double product = problem.accumulate ? std::abs(value - kInitialC) : 0.0;
        return sum * magnitude + last * (std::abs(value) + product + 2 * sum * magnitude);
      });
}

std::string case_name(const testing::TestParamInfo<Case>& test) {
  std::string name = test.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  const GemmProblem& problem = test.param.problem;
  return name + (problem.output == GemmOutput::kBf16 ? "_bf16" : "_fp32") + (problem.accumulate ? "_accumulate" : "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, GemmTest, testing::ValuesIn(cases()), case_name);

using GemmPlans = GpuTest<>;

TEST_F(GemmPlans, AreMadeOnceAProblemAndRepeatBitForBit) {
  Gemm gemm;
  const GemmProblem problem = with(forward_gemm(128, 256, 512), GemmOutput::kFp32, false);
  const Operands in = operands(problem, reals);
  const std::vector<float> first = result_of(gemm, problem, in);
  EXPECT_EQ(gemm.plan_count(), 1U);
  EXPECT_EQ(result_of(gemm, problem, in), first);
  EXPECT_EQ(gemm.plan_count(), 1U);
  result_of(gemm, with(problem, GemmOutput::kBf16, false), in);
  EXPECT_EQ(gemm.plan_count(), 2U);
}

TEST_F(GemmPlans, RefuseAnInvalidProblem) {
  Gemm gemm;
  GemmProblem problem = forward_gemm(8, 8, 8);
  problem.c_stride = 7;
  EXPECT_THROW(gemm.run(problem, nullptr, nullptr, nullptr, nullptr), std::invalid_argument);
  EXPECT_THROW(gemm.run(forward_gemm(8, 0, 8), nullptr, nullptr, nullptr, nullptr), std::invalid_argument);
}

using CheckTest = GpuTest<>;

TEST_F(CheckTest, NamesTheCallAndThePlaceAndClearsTheError) {
  try {
    LH_CUDA_CHECK(cudaSetDevice(1'000'000));
    FAIL() << "no such device, yet nothing was thrown";
  } catch (const CudaError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("gemm_test.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find("cudaSetDevice(1'000'000): cudaErrorInvalidDevice"), std::string::npos) << text;
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace longhaul
