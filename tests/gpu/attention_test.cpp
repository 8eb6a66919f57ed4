// Our attention kernels and the merge of partial outputs against the CPU references. Outputs start as NaN, so that an
// element that was never written fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>

#include "kernels/attention/merge.h"
#include "kernels/attention/piece_attention.h"
#include "kernels/common/stream.h"
#include "tests/gpu/attention_cases.h"
#include "tests/gpu/attention_check.h"
#include "tests/gpu/device.h"

namespace longhaul {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Kernel = PieceAttention::Kernel;

int capability() {
  int device = 0, major = 0, minor = 0;
  LH_CUDA_CHECK(cudaGetDevice(&device));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

AttentionShape heads_of(const ReferenceShape& shape) {
  return {static_cast<int>(shape.q_heads), static_cast<int>(shape.kv_heads), static_cast<int>(shape.head_dim)};
}

struct Rows {
  std::vector<Bf16> q, k, v;
};
Rows rows_of(const ReferenceShape& shape, float query_scale) {
  return {random_rows(shape.q_rows * shape.q_heads * shape.head_dim, 1, query_scale),
          random_rows(shape.k_rows * shape.kv_heads * shape.head_dim, 2),
          random_rows(shape.k_rows * shape.kv_heads * shape.head_dim, 3)};
}

struct Output {
  std::vector<Bf16> o;
  std::vector<float> lse;
};

// `launches` times into the same poisoned buffers.
Output run(PieceAttention& attention, const AttentionCase& test, const Rows& in, int launches = 1) {
  Stream stream;
  DeviceBuffer<Bf16> q(in.q.size()), k(in.k.size()), v(in.v.size()), o(in.q.size());
  DeviceBuffer<float> lse(static_cast<std::size_t>(test.shape.q_rows * test.shape.q_heads));
  q.upload(in.q, stream.get());
  k.upload(in.k, stream.get());
  v.upload(in.v, stream.get());
  const PiecePlan plan = attention.plan(test.pieces, test.shape.q_rows, test.shape.k_rows, stream.get());
  for (int i = 0; i < launches; ++i) {
    o.poison(stream.get());
    lse.poison(stream.get());
    attention.forward(plan, q.data(), k.data(), v.data(), o.data(), lse.data(), stream.get());
  }
  return {o.download(stream.get()), lse.download(stream.get())};
}

// Values are below 1. A probability in bf16 errs by 2^-9 of itself, so their mean by 2^-9 at most; rounding the result
// to bf16 adds as much. The log-sum-exp is fp32 throughout: scores below 2^7 at worst, a few roundings of 2^-24 each,
// 2^-22 of each exponential (ex2.approx), logf 2^-23 of a number below 8: under 1e-4 for large scores, 1e-5 else.
void expect_attention(const AttentionCase& test, const Rows& in, const Output& out, double lse_bound) {
  const AttentionReference want = attention_reference(test.shape, test.pieces, in.q, in.k, in.v);
  expect_each_near(widened(out.o), want.o, 1.01 * 0x1p-8, "o");
  expect_each_near(widened(out.lse), want.lse, lse_bound, "lse");
}

class PieceAttentionTest : public GpuTest<testing::TestWithParam<std::tuple<Kernel, AttentionCase>>> {
 protected:
  const AttentionCase& test() const { return std::get<1>(GetParam()); }
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const std::string why = refusal(std::get<0>(GetParam()), heads_of(test().shape), capability());
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(PieceAttentionTest, MatchesTheReference) {
  PieceAttention attention(heads_of(test().shape), std::get<0>(GetParam()));
  const Rows in = rows_of(test().shape, 1.0F);
  expect_attention(test(), in, run(attention, test(), in), 1e-5);
}

// Scores of about +-20 x 16 / sqrt(3): one key takes nearly all of a row.
TEST_P(PieceAttentionTest, MatchesTheReferenceOnLargeScores) {
  PieceAttention attention(heads_of(test().shape), std::get<0>(GetParam()));
  const Rows in = rows_of(test().shape, 16.0F);
  expect_attention(test(), in, run(attention, test(), in), 1e-4);
}

TEST_P(PieceAttentionTest, RepeatsBitForBit) {
  PieceAttention attention(heads_of(test().shape), std::get<0>(GetParam()));
  const Rows in = rows_of(test().shape, 1.0F);
  const Output once = run(attention, test(), in), again = run(attention, test(), in, 3);
  EXPECT_TRUE(
      std::equal(once.o.begin(), once.o.end(), again.o.begin(), [](Bf16 a, Bf16 b) { return a.bits == b.bits; }));
  EXPECT_EQ(once.lse, again.lse);
}

// One element of the last query row: its head is NaN in O and log-sum-exp, all else is what it was.
void expect_nan_kept(PieceAttention& attention, const AttentionCase& test) {
  Rows in = rows_of(test.shape, 1.0F);
  const AttentionReference want = attention_reference(test.shape, test.pieces, in.q, in.k, in.v);
  in.q.back() = to_bf16(std::numeric_limits<float>::quiet_NaN());
  const Output out = run(attention, test, in);
  const bool sees = std::isfinite(want.lse.back());
  for (std::size_t i = 0; i < out.lse.size(); ++i) {
    const bool wrong = sees && i + 1 == out.lse.size();
    ASSERT_EQ(std::isnan(out.lse[i]), wrong) << "lse " << i;
    for (std::size_t c = 0; c < static_cast<std::size_t>(test.shape.head_dim); ++c) {
      const std::size_t at = i * static_cast<std::size_t>(test.shape.head_dim) + c;
      ASSERT_EQ(std::isnan(to_float(out.o[at])), wrong) << "o " << at;
    }
  }
}

TEST_P(PieceAttentionTest, NanIsNoRowWithoutKeys) {
  PieceAttention attention(heads_of(test().shape), std::get<0>(GetParam()));
  expect_nan_kept(attention, test());
}

// Versions of a Hopper kernel.
template <class Version>
class HopperVersionTest : public GpuTest<testing::TestWithParam<std::tuple<Version, AttentionCase>>> {
 protected:
  const AttentionCase& test() const { return std::get<1>(this->GetParam()); }
  PieceAttention attention() const {
    PieceAttention made(heads_of(test().shape), Kernel::kHopper);
    made.use(std::get<0>(this->GetParam()));
    return made;
  }
  void SetUp() override {
    GpuTest<testing::TestWithParam<std::tuple<Version, AttentionCase>>>::SetUp();
    if (this->IsSkipped()) return;
    const std::string why = refusal(Kernel::kHopper, heads_of(test().shape), capability());
    if (!why.empty()) GTEST_SKIP() << why;
  }
};
std::string letter_of(HopperForwardVersion version) {
  return hopper_forward_names()[static_cast<std::size_t>(version)];
}
std::string letter_of(HopperBackwardVersion version) {
  return hopper_backward_names()[static_cast<std::size_t>(version)];
}
template <class Version>
std::string version_name(const testing::TestParamInfo<std::tuple<Version, AttentionCase>>& info) {
  return letter_of(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
}

// Those of the forward kernel that are not its default.
class HopperForwardTest : public HopperVersionTest<HopperForwardVersion> {};

TEST_P(HopperForwardTest, MatchesTheReference) {
  PieceAttention version = attention();
  const Rows in = rows_of(test().shape, 1.0F), large = rows_of(test().shape, 16.0F);
  expect_attention(test(), in, run(version, test(), in, 2), 1e-5);
  expect_attention(test(), large, run(version, test(), large), 1e-4);
}

TEST_P(HopperForwardTest, NanIsNoRowWithoutKeys) {
  PieceAttention version = attention();
  expect_nan_kept(version, test());
}

static_assert(kDefaultHopperForward == HopperForwardVersion::kE);  // PieceAttentionTest has it
INSTANTIATE_TEST_SUITE_P(Versions, HopperForwardTest,
                         testing::Combine(testing::Values(HopperForwardVersion::kA),
                                          testing::ValuesIn(attention_cases(128))),
                         version_name<HopperForwardVersion>);

struct Gradients {
  std::vector<Bf16> q, k, v;
};

// Forward, then twice backward into the same poisoned buffers.
Gradients run_backward(PieceAttention& attention, const AttentionCase& test, const Rows& in,
                       const std::vector<Bf16>& gradient, int group = 1) {
  Stream stream;
  DeviceBuffer<Bf16> q(in.q.size()), k(in.k.size()), v(in.v.size()), o(in.q.size()), d_o(in.q.size());
  DeviceBuffer<Bf16> d_q(in.q.size()), d_k(in.k.size()), d_v(in.v.size());
  DeviceBuffer<float> lse(static_cast<std::size_t>(test.shape.q_rows * test.shape.q_heads));
  q.upload(in.q, stream.get());
  k.upload(in.k, stream.get());
  v.upload(in.v, stream.get());
  d_o.upload(gradient, stream.get());
  const PiecePlan plan = attention.plan(test.pieces, test.shape.q_rows, test.shape.k_rows, stream.get());
  const PieceBackwardPlan backward =
      attention.plan_backward(test.pieces, test.shape.q_rows, test.shape.k_rows, stream.get(), {group, 1e9, 0});
  attention.forward(plan, q.data(), k.data(), v.data(), o.data(), lse.data(), stream.get());
  for (int launch = 0; launch < 2; ++launch) {
    for (auto* buffer : {&d_q, &d_k, &d_v}) buffer->poison(stream.get());
    attention.backward(backward, {q.data(), k.data(), v.data(), o.data(), lse.data(), d_o.data()},
                       {d_q.data(), d_k.data(), d_v.data()}, stream.get());
  }
  return {d_q.download(stream.get()), d_k.download(stream.get()), d_v.download(stream.get())};
}

// The reference makes O and LSE of its own; ours come from the forward kernel. Probabilities, dS and the results are
// rounded to bf16 (2^-9 each): a few 1e-3 of the whole.
void expect_gradients(PieceAttention& attention, const AttentionCase& test, int group = 1) {
  const Rows in = rows_of(test.shape, 1.0F);
  const std::vector<Bf16> gradient = random_rows(static_cast<std::int64_t>(in.q.size()), 4);
  const Gradients got = run_backward(attention, test, in, gradient, group);
  const AttentionGradients want = attention_reference_backward(test.shape, test.pieces, in.q, in.k, in.v, gradient);
  expect_close(widened(got.q), want.q, 0.01, "dq");
  expect_close(widened(got.k), want.k, 0.01, "dk");
  expect_close(widened(got.v), want.v, 0.01, "dv");
}

TEST_P(PieceAttentionTest, BackwardMatchesTheReference) {
  PieceAttention attention(heads_of(test().shape), std::get<0>(GetParam()));
  expect_gradients(attention, test());
}

// Every one of the backward kernel, the default too.
class HopperBackwardTest : public HopperVersionTest<HopperBackwardVersion> {};

TEST_P(HopperBackwardTest, MatchesTheReference) {
  PieceAttention version = attention();
  expect_gradients(version, test());
}

const auto every_version =
    testing::Values(HopperBackwardVersion::kC, HopperBackwardVersion::kD, HopperBackwardVersion::kE,
                    HopperBackwardVersion::kF, HopperBackwardVersion::kG, HopperBackwardVersion::kH);
INSTANTIATE_TEST_SUITE_P(Cases, HopperBackwardTest,
                         testing::Combine(every_version, testing::ValuesIn(attention_cases(128))),
                         version_name<HopperBackwardVersion>);

// Key tiles in step visit query tiles that they see nothing of.
class HopperGroupTest : public HopperBackwardTest {};
TEST_P(HopperGroupTest, MatchesTheReference) {
  for (const int group : {2, 3, 8}) {
    SCOPED_TRACE(group);
    PieceAttention version = attention();
    expect_gradients(version, test(), group);
  }
}
INSTANTIATE_TEST_SUITE_P(Groups, HopperGroupTest,
                         testing::Combine(testing::Values(HopperBackwardVersion::kC, HopperBackwardVersion::kD,
                                                          HopperBackwardVersion::kG),
                                          testing::ValuesIn(attention_cases(128))),
                         version_name<HopperBackwardVersion>);

// Calls too long for the reference, with many key tiles a block, against version C: dK and dV are sums in the same
// order, dQ is not, so that some of it rounds to the other bf16 (2^-8 of itself, in few places).
class HopperBackwardVersionTest : public GpuTest<testing::TestWithParam<HopperBackwardVersion>> {};

TEST_P(HopperBackwardVersionTest, AgreesWithTheOthersOnLongCalls) {
  const std::string why = refusal(Kernel::kHopper, {8, 2, 128}, capability());
  if (!why.empty()) GTEST_SKIP() << why;
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 90; ++i) lengths.push_back(1 + 37 * i % 331);
  std::int64_t packed = 0;
  for (const std::int64_t length : lengths) packed += length;
  const std::vector<AttentionCase> cases = {{"diffusion", {10000, 10000, 8, 2, 128}, block_diffusion(5000, 64, false)},
                                            {"documents", {packed, packed, 32, 8, 128}, packed_documents(lengths)},
                                            {"causal", {12345, 12345, 8, 2, 128}, packed_documents({12345})}};
  for (const AttentionCase& test : cases) {
    SCOPED_TRACE(test.name);
    const Rows in = rows_of(test.shape, 1.0F);
    const std::vector<Bf16> gradient = random_rows(static_cast<std::int64_t>(in.q.size()), 4);
    PieceAttention first(heads_of(test.shape), Kernel::kHopper), other(heads_of(test.shape), Kernel::kHopper);
    first.use(HopperBackwardVersion::kC);
    other.use(GetParam());
    const Gradients want = run_backward(first, test, in, gradient);
    for (const int group : {1, 8}) {  // what is masked adds zeros
      SCOPED_TRACE(group);
      const Gradients got = run_backward(other, test, in, gradient, group);
      expect_close(widened(got.q), widened(want.q), 1e-3, "dq");
      expect_each_near(widened(got.k), widened(want.k), 0, "dk");
      expect_each_near(widened(got.v), widened(want.v), 0, "dv");
    }
  }
}

std::string version_only(const testing::TestParamInfo<HopperBackwardVersion>& version) {
  return letter_of(version.param);
}
INSTANTIATE_TEST_SUITE_P(Versions, HopperBackwardVersionTest, every_version, version_only);

std::string name_of(const testing::TestParamInfo<std::tuple<Kernel, AttentionCase>>& info) {
  const AttentionCase& test = std::get<1>(info.param);
  return (std::get<0>(info.param) == Kernel::kHopper ? "hopper_" : "portable_") + test.name + "_" +
         std::to_string(test.shape.head_dim);
}

INSTANTIATE_TEST_SUITE_P(Hopper, PieceAttentionTest,
                         testing::Combine(testing::Values(Kernel::kHopper), testing::ValuesIn(attention_cases(128))),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Portable64, PieceAttentionTest,
                         testing::Combine(testing::Values(Kernel::kPortable), testing::ValuesIn(attention_cases(64))),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Portable128, PieceAttentionTest,
                         testing::Combine(testing::Values(Kernel::kPortable), testing::ValuesIn(attention_cases(128))),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Portable256, PieceAttentionTest,
                         testing::Combine(testing::Values(Kernel::kPortable), testing::ValuesIn(attention_cases(256))),
                         name_of);

class LongKeysTest : public GpuTest<testing::TestWithParam<std::tuple<Kernel, std::int64_t>>> {};

// 512 key tiles of Hopper's kernel and more of the others: what each of them errs by in the same direction adds up. As
// in expect_attention but for the scores, below 2^3 here, that leaves 5e-6; 3e-7 of the sum a tile were 1e-4.
TEST_P(LongKeysTest, LogSumExpDoesNotDrift) {
  const auto [kernel, dim] = GetParam();
  const AttentionCase test{"long", {64, 65536, 1, 1, dim}, {piece_of(0, 64, 0, 65536, MaskRule::kFull)}};
  const std::string why = refusal(kernel, heads_of(test.shape), capability());
  if (!why.empty()) GTEST_SKIP() << why;
  PieceAttention attention(heads_of(test.shape), kernel);
  const Rows in = rows_of(test.shape, 1.0F);
  expect_attention(test, in, run(attention, test, in), 5e-6);
}

INSTANTIATE_TEST_SUITE_P(Kernels, LongKeysTest,
                         testing::Values(std::make_tuple(Kernel::kHopper, 128), std::make_tuple(Kernel::kPortable, 64),
                                         std::make_tuple(Kernel::kPortable, 128),
                                         std::make_tuple(Kernel::kPortable, 256)));

using PieceAttentionLimits = GpuTest<>;

TEST_F(PieceAttentionLimits, NameWhatIsSupported) {
  EXPECT_THAT(
      [] {
        PieceAttention({8, 2, 96});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("head dimension 96; supported are 64, 128 and 256")));
  EXPECT_THAT(
      [] {
        PieceAttention({8, 3, 128});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("8 query heads for 3 key heads")));
  EXPECT_THAT(
      [] {
        PieceAttention({8, 2, 64}, Kernel::kHopper);
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("the Hopper kernel has 128")));
}

TEST(PieceAttentionRefusal, NamesTheDevice) {
  EXPECT_EQ(refusal(Kernel::kPortable, {1, 1, 128}, 75), "attention needs sm_80 or later; this device is sm_75");
  EXPECT_EQ(refusal(Kernel::kHopper, {1, 1, 128}, 100), "the Hopper kernel needs sm_90; this device is sm_100");
  EXPECT_EQ(refusal(Kernel::kHopper, {8, 2, 128}, 90), "");
  EXPECT_EQ(refusal(Kernel::kPortable, {8, 2, 256}, 120), "");
}

class MergeTest : public GpuTest<testing::TestWithParam<int>> {};

// Part row i goes to row list[i]; rows 4 and 9 have no keys so far, part row 2 has none, rows outside the list stay.
TEST_P(MergeTest, MatchesTheReference) {
  const int dim = GetParam(), heads = 3, rows = 12, part_rows = 5;
  const std::vector<std::int32_t> list = {4, 0, 11, 7, 9};
  std::vector<Bf16> o = random_rows(rows * heads * dim, 1), part = random_rows(part_rows * heads * dim, 2);
  std::vector<float> lse, part_lse;
  for (const Bf16 x : random_rows(rows * heads, 3, 8.0F)) lse.push_back(to_float(x));
  for (const Bf16 x : random_rows(part_rows * heads, 4, 8.0F)) part_lse.push_back(to_float(x));
  for (int h = 0; h < heads; ++h) {
    for (const int row : {4, 9}) {
      lse[static_cast<std::size_t>(row * heads + h)] = -INFINITY;
      for (int d = 0; d < dim; ++d) o[static_cast<std::size_t>((row * heads + h) * dim + d)] = Bf16{};
    }
    part_lse[static_cast<std::size_t>(2 * heads + h)] = -INFINITY;
  }
  std::vector<double> want_o = widened(o), want_lse = widened(lse);
  for (int i = 0; i < part_rows; ++i) {
    const auto from = static_cast<std::size_t>(i * heads),
               to = static_cast<std::size_t>(list[static_cast<std::size_t>(i)] * heads);
    const auto width = static_cast<std::size_t>(dim), count = static_cast<std::size_t>(heads);
    std::vector<double> row(want_o.begin() + static_cast<std::ptrdiff_t>(to * width),
                            want_o.begin() + static_cast<std::ptrdiff_t>((to + count) * width));
    std::vector<double> row_lse(want_lse.begin() + static_cast<std::ptrdiff_t>(to),
                                want_lse.begin() + static_cast<std::ptrdiff_t>(to + count));
    merge_reference(row, row_lse, widened(std::span(part).subspan(from * width, count * width)),
                    widened(std::span<const float>(part_lse).subspan(from, count)), dim);
    std::copy(row.begin(), row.end(), want_o.begin() + static_cast<std::ptrdiff_t>(to * width));
    std::copy(row_lse.begin(), row_lse.end(), want_lse.begin() + static_cast<std::ptrdiff_t>(to));
  }
  Stream stream;
  DeviceBuffer<Bf16> device_o(o.size()), device_part(part.size());
  DeviceBuffer<float> device_lse(lse.size()), device_part_lse(part_lse.size()), wide_o(o.size()), wide_lse(lse.size());
  DeviceBuffer<std::int32_t> device_list(list.size());
  device_o.upload(o, stream.get());
  device_part.upload(part, stream.get());
  device_lse.upload(lse, stream.get());
  wide_lse.upload(lse, stream.get());
  device_part_lse.upload(part_lse, stream.get());
  device_list.upload(list, stream.get());
  std::vector<float> o_fp32;
  for (const Bf16 x : o) o_fp32.push_back(to_float(x));
  wide_o.upload(o_fp32, stream.get());
  const MergeShape shape{part_rows, heads, dim};
  merge_partials(shape, device_part.data(), device_part_lse.data(), device_list.data(), device_o.data(),
                 device_lse.data(), stream.get());
  merge_partials(shape, device_part.data(), device_part_lse.data(), device_list.data(), wide_o.data(), wide_lse.data(),
                 stream.get());
  // |o| < 1: one rounding to bf16, 2^-9; in fp32 only expf's and the sums' few units of 2^-23.
  expect_each_near(widened(device_o.download(stream.get())), want_o, 1.01 * 0x1p-9, "o");
  expect_each_near(widened(wide_o.download(stream.get())), want_o, 0x1p-20, "fp32 o");
  expect_each_near(widened(device_lse.download(stream.get())), want_lse, 4e-6, "lse");
  EXPECT_EQ(device_lse.download(stream.get()), wide_lse.download(stream.get()));
}

// A row of NaN is no row without keys, on either side and beside either kind.
TEST_P(MergeTest, KeepsNan) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const int dim = GetParam();
  Stream stream;
  DeviceBuffer<Bf16> part(static_cast<std::size_t>(4 * dim));
  DeviceBuffer<float> o(part.size()), lse(4), part_lse(4);
  part.upload(std::vector<Bf16>(part.size(), to_bf16(1.0F)), stream.get());
  o.upload(std::vector<float>(part.size(), 1.0F), stream.get());
  lse.upload(std::vector<float>{1, kNan, -INFINITY, kNan}, stream.get());
  part_lse.upload(std::vector<float>{kNan, 2, kNan, -INFINITY}, stream.get());
  merge_partials({4, 1, dim}, part.data(), part_lse.data(), nullptr, o.data(), lse.data(), stream.get());
  for (const float x : o.download(stream.get())) EXPECT_TRUE(std::isnan(x));
  for (const float x : lse.download(stream.get())) EXPECT_TRUE(std::isnan(x));
}

INSTANTIATE_TEST_SUITE_P(HeadDims, MergeTest, testing::Values(64, 128, 256), testing::PrintToStringParamName());

using MergeLimits = GpuTest<>;

TEST_F(MergeLimits, NameWhatIsSupported) {
  EXPECT_THAT(
      [] {
        merge_partials({1, 1, 80}, nullptr, nullptr, nullptr, static_cast<Bf16*>(nullptr), nullptr, nullptr);
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("head dimension 80; supported are 64, 128 and 256")));
  EXPECT_THROW(merge_partials({-1, 1, 64}, nullptr, nullptr, nullptr, static_cast<Bf16*>(nullptr), nullptr, nullptr),
               std::invalid_argument);
}

}  // namespace
}  // namespace longhaul
