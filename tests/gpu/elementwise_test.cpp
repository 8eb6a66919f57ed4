// The memory-bound kernels against their double-precision references, on random data with poisoned outputs, at sizes
// that end within a block, and what they refuse.
//
// Bounds. Rounding to bf16 (8 significant bits) adds 2^-8 of the result. fp32 arithmetic adds a few 2^-24 of what it
// adds up: kFew = 2^-20 of the terms' size covers a dozen operations and the hardware's exp2 (__expf: 2 ulp plus
// 2^-24 |x| 1.5 of the argument, |x| <= 20 here). Sums over n terms of random sign in a tree add at most a few more.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "kernels/common/device_buffer.h"
#include "kernels/common/stream.h"
#include "kernels/elementwise/adamw.h"
#include "kernels/elementwise/cross_entropy.h"
#include "kernels/elementwise/elementwise_reference.h"
#include "kernels/elementwise/merge.h"
#include "kernels/elementwise/rms_norm.h"
#include "kernels/elementwise/rope.h"
#include "kernels/elementwise/rows.h"
#include "kernels/elementwise/swiglu.h"
#include "tests/gpu/device.h"

namespace longhaul {
namespace {

constexpr double kRounded = 0x1p-8;
constexpr double kFew = 0x1p-20;
constexpr double kNothing = -std::numeric_limits<double>::infinity();

// Uniform in [-scale, scale).
std::vector<float> reals(std::int64_t size, std::uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = scale * (static_cast<float>(random()) * 0x1p-31F - 1.0F);
  return values;
}

std::vector<Bf16> brain_reals(std::int64_t size, std::uint32_t seed, float scale = 1) {
  std::vector<Bf16> values;
  for (const float value : reals(size, seed, scale)) values.push_back(to_bf16(value));
  return values;
}

// A poisoned or uploaded device array, for short tests.
template <class T>
struct Device : DeviceBuffer<T> {
  explicit Device(std::size_t size) : DeviceBuffer<T>(size) {
    Stream stream;
    this->poison(stream.get());
    stream.synchronize();
  }
  explicit Device(const std::vector<T>& values) : DeviceBuffer<T>(values.size()) {
    Stream stream;
    this->upload(values, stream.get());
    stream.synchronize();
  }
};

class ElementwiseTest : public GpuTest<> {
 protected:
  void SetUp() override {
    GpuTest<>::SetUp();
    if (!IsSkipped()) stream_ = std::make_unique<Stream>();
  }
  cudaStream_t stream() const { return stream_->get(); }
  template <class T>
  Doubles result(const DeviceBuffer<T>& buffer) const {
    return to_doubles(buffer.download(stream()));
  }
  // bound(i): the error allowed of element i.
  static void expect_near(const char* what, const Doubles& got, const Doubles& want,
                          const std::function<double(std::size_t)>& bound) {
    ASSERT_EQ(got.size(), want.size()) << what;
    int wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const bool right = got[i] == want[i] || std::abs(got[i] - want[i]) <= bound(i);  // false for NaN
      if (!right && ++wrong <= 5)
        ADD_FAILURE() << what << "[" << i << "]: " << got[i] << ", want " << want[i] << " +- " << bound(i);
    }
    EXPECT_EQ(wrong, 0) << what;
  }

 private:
  std::unique_ptr<Stream> stream_;
};

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "taken";
}

// 700 tokens: blocks of the backward pass have two to five. 32 and 8 are less than a block's groups, 4104 no multiple;
// up to 8192 rows are kept in registers, by one, two and twice two groups a thread.
TEST_F(ElementwiseTest, RmsNorm) {
  for (const std::int64_t width : {8, 32, 2048, 2056, 4096, 4104, 8192, 8200, 16384}) {
    const RmsNormShape shape{.tokens = 700, .width = width, .epsilon = 1e-5F};
    const std::int64_t size = shape.tokens * width;
    const auto x = brain_reals(size, 1, 3), w = brain_reals(width, 2, 2), dy = brain_reals(size, 3);
    const Device<Bf16> device_x(x), device_w(w), device_dy(dy);
    Device<Bf16> y(x.size()), dx(x.size());
    Device<float> r(700), dw(w.size()), scratch(rms_norm_scratch(shape));
    rms_norm(shape, device_x.data(), device_w.data(), y.data(), r.data(), stream());
    rms_norm_backward(shape, device_x.data(), device_w.data(), r.data(), device_dy.data(), dx.data(), dw.data(),
                      scratch.data(), stream());
    const Doubles dx_w = to_doubles(w);
    const RmsNormReference want = rms_norm_reference(to_doubles(x), dx_w, to_doubles(dy), 1e-5F);
    expect_near("y", result(y), want.y, [&](std::size_t i) { return (kRounded + kFew) * std::abs(want.y[i]); });
    expect_near("r", result(r), want.r, [&](std::size_t i) { return kFew * want.r[i]; });
    // Terms of dx: r w dy and x r^3 mean, both at most about r 2 (|w| < 2, |dy| < 1).
    expect_near("dx", result(dx), want.dx, [&](std::size_t i) {
      return kRounded * std::abs(want.dx[i]) + 8 * kFew * want.r[i / static_cast<std::size_t>(width)];
    });
    expect_near("dw", result(dw), want.dw, [&](std::size_t i) { return kFew * want.dw_size[i]; });
    EXPECT_FALSE(testing::Test::HasFailure()) << "width " << width;
  }
}

TEST_F(ElementwiseTest, RmsNormBackwardMayOverwriteAndRepeatsBitForBit) {
  const RmsNormShape shape{.tokens = 300, .width = 1024};
  const auto x = brain_reals(300 * 1024, 1), w = brain_reals(1024, 2), dy = brain_reals(300 * 1024, 3);
  const Device<Bf16> device_x(x), device_w(w);
  Device<Bf16> y(x.size()), apart(x.size()), within(dy);
  const Device<Bf16> device_dy(dy);
  Device<float> r(300), dw(1024), again(1024), scratch(rms_norm_scratch(shape));
  rms_norm(shape, device_x.data(), device_w.data(), y.data(), r.data(), stream());
  rms_norm_backward(shape, device_x.data(), device_w.data(), r.data(), device_dy.data(), apart.data(), dw.data(),
                    scratch.data(), stream());
  rms_norm_backward(shape, device_x.data(), device_w.data(), r.data(), within.data(), within.data(), again.data(),
                    scratch.data(), stream());
  EXPECT_EQ(result(apart), result(within));
  EXPECT_EQ(result(dw), result(again));
}

// gate and up are the halves of one product's rows; the gradients go over them.
TEST_F(ElementwiseTest, Swiglu) {
  const SwigluShape shape{.tokens = 37, .width = 2056, .stride = 2 * 2056};
  std::vector<Bf16> gate = brain_reals(37 * 2056, 1, 6), up = brain_reals(37 * 2056, 2, 2), rows;
  const auto dy = brain_reals(37 * 2056, 3);
  for (std::ptrdiff_t token = 0; token < 37; ++token) {
    rows.insert(rows.end(), gate.begin() + token * 2056, gate.begin() + (token + 1) * 2056);
    rows.insert(rows.end(), up.begin() + token * 2056, up.begin() + (token + 1) * 2056);
  }
  Device<Bf16> both(rows), y(gate.size());
  const Device<Bf16> device_dy(dy);
  Bf16* device_gate = both.data();
  Bf16* device_up = both.data() + 2056;
  swiglu(shape, device_gate, device_up, y.data(), stream());
  const SwigluReference want = swiglu_reference(to_doubles(gate), to_doubles(up), to_doubles(dy));
  expect_near("y", result(y), want.y, [&](std::size_t i) { return (kRounded + 4 * kFew) * std::abs(want.y[i]); });
  swiglu_backward(shape, device_gate, device_up, device_dy.data(), device_gate, device_up, stream());
  const Doubles gradients = result(both);
  Doubles dgate, dup;
  for (std::size_t i = 0; i < gradients.size(); ++i) (i / 2056 % 2 == 0 ? dgate : dup).push_back(gradients[i]);
  // 1 + g (1 - s) cancels near g = -1.28: its terms are at most 1 and 6.
  expect_near("dgate", dgate, want.dgate,
              [&](std::size_t i) { return kRounded * std::abs(want.dgate[i]) + 16 * kFew; });
  expect_near("dup", dup, want.dup, [&](std::size_t i) { return (kRounded + 4 * kFew) * std::abs(want.dup[i]); });
}

// Positions up to two millions, where fp32 angles would be off by a tenth of a radian.
TEST_F(ElementwiseTest, Rope) {
  for (const int head_dim : {64, 128, 256}) {
    constexpr int kHeads = 5, kTokens = 43;
    const std::int64_t row = kHeads * head_dim;
    const RopeShape shape{.tokens = kTokens, .stride = row + 64, .heads = kHeads, .head_dim = head_dim};
    const auto tight = brain_reals(kTokens * row, 1);
    std::vector<Bf16> x(static_cast<std::size_t>(kTokens * shape.stride), to_bf16(9));
    std::vector<std::int32_t> positions;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      std::copy_n(tight.begin() + token * row, row, x.begin() + token * shape.stride);
      positions.push_back(static_cast<std::int32_t>(token * 49999));
    }
    const std::vector<double> frequencies = rope_frequencies(head_dim, 500000);
    for (const bool inverse : {false, true}) {
      Device<Bf16> device_x(x);
      const Device<std::int32_t> device_positions(positions);
      rope(shape, frequencies, device_positions.data(), inverse, device_x.data(), stream());
      const Doubles got = result(device_x);
      const Doubles turned = rope_reference(to_doubles(tight), frequencies, positions, kHeads, inverse);
      Doubles want(got.size(), 9);
      for (std::ptrdiff_t token = 0; token < kTokens; ++token) {
        std::copy_n(turned.begin() + token * row, row, want.begin() + token * shape.stride);
      }
      expect_near("x", got, want, [&](std::size_t i) { return kRounded * std::abs(want[i]) + 2 * kFew; });
    }
  }
}

TEST(Rope, FrequenciesFallFromOneByTheBase) {
  const std::vector<double> frequencies = rope_frequencies(8, 10000);
  ASSERT_EQ(frequencies.size(), 4U);
  EXPECT_DOUBLE_EQ(frequencies[0], 1);
  EXPECT_DOUBLE_EQ(frequencies[1], 0.1);  // 10000^(-2/8)
  EXPECT_DOUBLE_EQ(frequencies[3], 0.001);
}

// Vocabularies of less than a group, of odd size, of Llama 3 and Qwen 2.5, and past what a cluster of blocks keeps;
// with clusters of 1, 2, 4 and 8 blocks. Logits up to 20: the losses differ.
TEST_F(ElementwiseTest, CrossEntropy) {
  for (const std::int64_t vocabulary : {3, 1000, 32768, 32769, 50257, 128256, 152064, 262147}) {
    constexpr std::int64_t kTokens = 19;
    const CrossEntropyShape shape{.tokens = kTokens, .vocabulary = vocabulary, .stride = (vocabulary + 15) / 8 * 8};
    const auto tight = brain_reals(kTokens * vocabulary, 1, 20);
    std::vector<Bf16> logits(static_cast<std::size_t>(kTokens * shape.stride), to_bf16(99));
    std::vector<std::int32_t> targets;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      std::copy_n(tight.begin() + token * vocabulary, vocabulary, logits.begin() + token * shape.stride);
      targets.push_back(static_cast<std::int32_t>(token * 7919 % vocabulary));
    }
    targets[0] = static_cast<std::int32_t>(vocabulary - 1);
    targets[5] = kIgnoredTarget;
    Device<Bf16> device_logits(logits);
    const Device<std::int32_t> device_targets(targets);
    Device<float> loss(kTokens), only_loss(kTokens);
    cross_entropy(shape, device_logits.data(), device_targets.data(), only_loss.data(), stream());
    EXPECT_EQ(result(device_logits), to_doubles(logits)) << "the loss alone changed the logits";
    cross_entropy_with_gradient(shape, device_logits.data(), device_targets.data(), 0.5F, loss.data(), stream());
    // Sums of up to 2^18 terms in another order.
    const Doubles alone = result(only_loss);
    expect_near("loss with gradient", result(loss), alone, [](std::size_t) { return 40 * kFew; });
    const CrossEntropyReference want = cross_entropy_reference(to_doubles(tight), targets, 0.5);
    expect_near("loss", result(loss), want.loss, [](std::size_t) { return 40 * kFew; });
    Doubles gradient(logits.size(), 99);
    for (std::int64_t token = 0; token < kTokens; ++token) {
      std::copy_n(want.gradient.begin() + token * vocabulary, vocabulary, gradient.begin() + token * shape.stride);
    }
    // exp of a difference of up to 40 that is off by 40 kFew; a subnormal bf16 rounds by 2^-134.
    expect_near("gradient", result(device_logits), gradient,
                [&](std::size_t i) { return (kRounded + 100 * kFew) * std::abs(gradient[i]) + kFew * 1e-3; });
  }
}

TEST_F(ElementwiseTest, CrossEntropyOfATargetOutsideTheVocabularyIsNoNumber) {
  const Device<Bf16> logits(brain_reals(2 * 16, 1));
  const Device<std::int32_t> targets(std::vector<std::int32_t>{10, 9});
  Device<float> loss(2);
  cross_entropy({.tokens = 2, .vocabulary = 10, .stride = 16}, logits.data(), targets.data(), loss.data(), stream());
  EXPECT_TRUE(std::isnan(result(loss)[0]));
  EXPECT_FALSE(std::isnan(result(loss)[1]));
}

// Five steps; the count is no multiple of a group. Each step errs by a few 2^-24 of the state and of the move.
TEST_F(ElementwiseTest, Adamw) {
  constexpr std::int64_t kCount = 1'000'003;
  const auto w = reals(kCount, 1);
  const std::vector<float> zero(kCount, 0);
  Device<float> device_w(w), device_m(zero), device_v(zero);
  Device<Bf16> weights(kCount);
  AdamwReference want{to_doubles(w), Doubles(kCount), Doubles(kCount)};
  for (std::int64_t step = 1; step <= 5; ++step) {
    const auto g = reals(kCount, static_cast<std::uint32_t>(10 + step), 0.1F);
    const Device<float> gradient(g);
    const AdamwSettings settings{.learning_rate = 1e-2, .step = step};
    adamw(settings, kCount, gradient.data(), {device_w.data(), device_m.data(), device_v.data()}, weights.data(),
          stream());
    want = adamw_reference(want.w, want.m, want.v, to_doubles(g), settings.learning_rate, settings.beta1,
                           settings.beta2, settings.epsilon, settings.weight_decay, step);
    const Doubles got = result(device_w);
    expect_near("w", got, want.w, [&](std::size_t) { return kFew; });
    expect_near("weights", result(weights), got, [&](std::size_t i) { return kRounded * std::abs(got[i]); });
  }
  expect_near("m", result(device_m), want.m, [](std::size_t) { return 0.1 * kFew; });
  expect_near("v", result(device_v), want.v, [](std::size_t) { return 0.01 * kFew; });
}

// Rows of one part, of less and of more than a block's threads, and enough rows for every block.
TEST_F(ElementwiseTest, PackAndUnpackRows) {
  for (const std::int64_t row_bytes : {16, 80, 1024, 28672}) {
    const std::int64_t rows = row_bytes == 16 ? 300'000 : 3001;
    const std::int64_t row_ints = row_bytes / 4;
    std::vector<std::int32_t> from(static_cast<std::size_t>(rows * row_ints)), index;
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::int32_t>(i * 2654435761U);
    for (std::int64_t i = 0; i < rows / 2; ++i)
      index.push_back(static_cast<std::int32_t>((i * 7 + 1) % (rows / 7 * 7)));
    const Device<std::int32_t> device_from(from), device_index(index);
    Device<std::int32_t> packed(index.size() * static_cast<std::size_t>(row_ints)), back(from.size());
    pack_rows(device_from.data(), device_index.data(), packed.data(), rows / 2, row_bytes, stream());
    unpack_rows(packed.data(), device_index.data(), back.data(), rows / 2, row_bytes, stream());
    std::vector<std::int32_t> want_packed(packed.size()), want_back(from.size(), -1);
    for (std::size_t i = 0; i < index.size(); ++i) {
      const auto source = from.begin() + index[i] * row_ints;
      std::copy_n(source, row_ints, want_packed.begin() + static_cast<std::ptrdiff_t>(i) * row_ints);
      std::copy_n(source, row_ints, want_back.begin() + index[i] * row_ints);
    }
    EXPECT_EQ(packed.download(stream()), want_packed) << row_bytes;
    EXPECT_EQ(back.download(stream()), want_back) << row_bytes;
  }
}

// The accumulator starts with nothing but l = minus infinity; some rows of each part saw no keys.
TEST_F(ElementwiseTest, MergeAttention) {
  for (const int head_dim : {8, 64, 128, 256}) {
    constexpr std::int64_t kRows = 331 * 3;
    const TokenMergeShape shape{.tokens = 331, .heads = 3, .head_dim = head_dim};
    Device<float> o(static_cast<std::size_t>(kRows * head_dim));
    Device<float> l(std::vector<float>(kRows, -std::numeric_limits<float>::infinity()));
    MergeReference want{Doubles(o.size()), Doubles(kRows, kNothing)};
    for (std::uint32_t step = 0; step < 4; ++step) {
      const auto part = brain_reals(kRows * head_dim, step);
      std::vector<float> part_l = reals(kRows, 100 + step, 8);
      for (std::size_t row = 0; row < kRows; row += 3 + step) part_l[row] = -std::numeric_limits<float>::infinity();
      const Device<Bf16> device_part(part);
      const Device<float> device_l(part_l);
      merge_attention(shape, o.data(), l.data(), device_part.data(), device_l.data(), stream());
      want = merge_reference(want.o, want.l, to_doubles(part), to_doubles(part_l));
    }
    EXPECT_EQ(want.l[0], kNothing);  // no part saw row 0
    expect_near("l", result(l), want.l, [](std::size_t) { return 16 * kFew; });
    expect_near("o", result(o), want.o, [](std::size_t) { return 64 * kFew; });
  }
}

// A row of NaN is no row without keys, on either side and beside either kind.
TEST_F(ElementwiseTest, MergeAttentionKeepsNan) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kEmpty = -std::numeric_limits<float>::infinity();
  Device<float> o(std::vector<float>(4 * 8, 1.0F)), l(std::vector<float>{1, kNan, kEmpty, kNan});
  const Device<Bf16> part(std::vector<Bf16>(4 * 8, to_bf16(1.0F)));
  const Device<float> part_l(std::vector<float>{kNan, 2, kNan, kEmpty});
  merge_attention({.tokens = 4, .heads = 1, .head_dim = 8}, o.data(), l.data(), part.data(), part_l.data(), stream());
  for (const float x : o.download(stream())) EXPECT_TRUE(std::isnan(x));
  for (const float x : l.download(stream())) EXPECT_TRUE(std::isnan(x));
}

TEST(ElementwiseArguments, AreRefusedWithWhatIsSupported) {
  auto* aligned = reinterpret_cast<Bf16*>(16);
  auto* odd = reinterpret_cast<Bf16*>(18);
  auto* floats = reinterpret_cast<float*>(16);
  EXPECT_EQ(refusal([&] {
              rms_norm({1, 12, 0}, aligned, aligned, aligned, floats, nullptr);
            }),
            "rms_norm: the width is 12; supported: multiples of 8");
  EXPECT_EQ(refusal([&] {
              rms_norm({1, 65536, 0}, aligned, aligned, aligned, floats, nullptr);
            }),
            "rms_norm: the width is 65536; supported: 8 to 32768");
  EXPECT_EQ(refusal([&] {
              rms_norm({1, 16, 0}, odd, aligned, aligned, floats, nullptr);
            }),
            "rms_norm: the address of a tensor modulo 16 is 2; supported: 16-byte aligned tensors");
  EXPECT_EQ(refusal([&] {
              swiglu({1, 16, 8}, aligned, aligned, aligned, nullptr);
            }),
            "swiglu: the stride is 8; supported: multiples of 8, not below the width");
  EXPECT_EQ(refusal([&] {
              rope({1, 96, 1, 24}, {}, nullptr, false, aligned, nullptr);
            }),
            "rope: the head dimension is 24; supported: multiples of 16 up to 256");
  EXPECT_EQ(refusal([&] {
              rope({1, 64, 1, 64}, {1}, nullptr, false, aligned, nullptr);
            }),
            "rope: the number of frequencies is 1; supported: half the head dimension");
  EXPECT_EQ(refusal([&] {
              cross_entropy({1, 9, 8}, aligned, nullptr, floats, nullptr);
            }),
            "cross_entropy: the vocabulary is 9; supported: 1 up to the stride");
  EXPECT_EQ(refusal([&] {
              adamw({.step = 0}, 8, floats, {floats, floats, floats}, aligned, nullptr);
            }),
            "adamw: the step is 0; supported: 1 and more");
  EXPECT_EQ(refusal([&] { pack_rows(aligned, nullptr, aligned, 1, 24, nullptr); }),
            "pack_rows: the bytes of a row is 24; supported: multiples of 16");
  EXPECT_EQ(refusal([&] {
              merge_attention({1, 1, 48}, floats, floats, aligned, floats, nullptr);
            }),
            "merge_attention: the head dimension is 48; supported: 8, 16, 32, 64, 128, 256");
}

}  // namespace
}  // namespace longhaul
