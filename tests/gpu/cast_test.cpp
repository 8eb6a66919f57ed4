#include "kernels/elementwise/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/common/device_buffer.h"
#include "kernels/common/stream.h"
#include "tests/gpu/device.h"

namespace longhaul {
namespace {

using CastTest = GpuTest<>;

std::vector<Bf16> cast_on_device(const std::vector<float>& values) {
  Stream stream;
  DeviceBuffer<float> from(values.size());
  DeviceBuffer<Bf16> to(values.size());
  from.upload(values, stream.get());
  to.poison(stream.get());
  cast_to_bf16(from.data(), to.data(), static_cast<std::int64_t>(values.size()), stream.get());
  return to.download(stream.get());
}

// Random bit patterns reach every exponent, denormals, infinities and NaNs; the second half lies exactly between two
// bf16 numbers, where ties go to even. Sizes: more than one block's share, and not a multiple of it.
TEST_F(CastTest, RoundsAsTheHostDoes) {
  std::mt19937 random(1);
  std::vector<float> values(10'000'019);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    values[i] = std::bit_cast<float>(i < values.size() / 2 ? bits : (bits & 0xFFFF0000U) | 0x8000U);
  }
  const std::vector<Bf16> result = cast_on_device(values);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Bf16 expected = to_bf16(values[i]);
    const bool same = std::isnan(values[i]) ? std::isnan(to_float(result[i])) : result[i].bits == expected.bits;
    if (!same && ++wrong < 10) ADD_FAILURE() << i << ": " << values[i] << " became " << to_float(result[i]);
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_F(CastTest, WidensEveryBf16Exactly) {
  std::vector<Bf16> values(1U << 16);
  for (std::size_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<std::uint16_t>(i);
  Stream stream;
  DeviceBuffer<Bf16> from(values.size());
  DeviceBuffer<float> to(values.size());
  from.upload(values, stream.get());
  to.poison(stream.get());
  cast_to_fp32(from.data(), to.data(), static_cast<std::int64_t>(values.size()), stream.get());
  const std::vector<float> result = to.download(stream.get());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected = to_float(values[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(result[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(result[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  }
}

// Views that start at an odd element take the path of single elements.
TEST_F(CastTest, CastsUnalignedViews) {
  Stream stream;
  constexpr std::size_t kCount = 5003;
  std::vector<float> values(kCount + 1);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.3F;
  DeviceBuffer<float> from(values.size());
  DeviceBuffer<Bf16> to(values.size());
  from.upload(values, stream.get());
  to.poison(stream.get());
  cast_to_bf16(from.data() + 1, to.data() + 1, kCount, stream.get());
  const std::vector<Bf16> result = to.download(stream.get());
  EXPECT_EQ(result[0].bits, 0xFFFF);
  for (std::size_t i = 1; i < values.size(); ++i) ASSERT_EQ(result[i].bits, to_bf16(values[i]).bits) << i;
}

TEST_F(CastTest, WritesNothingBeyondTheCount) {
  Stream stream;
  DeviceBuffer<float> from(300);
  DeviceBuffer<Bf16> to(300);
  from.upload(std::vector<float>(300, 1.0F), stream.get());
  to.poison(stream.get());
  cast_to_bf16(from.data(), to.data(), 257, stream.get());
  cast_to_bf16(from.data(), to.data(), 0, stream.get());
  const std::vector<Bf16> result = to.download(stream.get());
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(result[i].bits, i < 257 ? 0x3F80 : 0xFFFF) << i;
}

}  // namespace
}  // namespace longhaul
