// The model evaluated by hand with the round constants of sample_calibration.h.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/cost/sample_calibration.h"

namespace longhaul {
namespace {

constexpr double kExact = 1e-15;  // relative room for the order of a few additions

void expect_estimate(double value, double expected) { EXPECT_NEAR(value, expected, kExact * expected * 4); }

// 1024 x 1024 x 1024 on 100 multiprocessors: 64 tiles, 1 wave of 1024 + 512 steps at 1 ns; 2^31 FLOPs at 1e-15 s;
// half of them beyond 512 rows at 2e-16 s. Per call 16 us, of which a busy stream hides 8 us.
TEST(KernelModel, GemmIsTheSumOfItsTerms) {
  const KernelModel model = sample_model(sample_device("sample"));
  const Estimate estimate = model.gemm(GemmPass::kForward, 1024, 1024, 1024);
  const double work = 1536e-9 + 2147483648.0 * 1e-15 + 1073741824.0 * 2e-16;
  expect_estimate(estimate.seconds, 16e-6 + work - 8e-6);
  EXPECT_EQ(estimate.basis, Basis::kInterpolated);
  // Timed alone it is under 50 us: the residuals of small calls.
  expect_estimate(estimate.low, estimate.seconds * 0.75);
  expect_estimate(estimate.high, estimate.seconds * 1.5);
  const Estimate alone = KernelModel::timed_alone(estimate);
  expect_estimate(alone.seconds, 16e-6 + work);
  expect_estimate(alone.high, alone.seconds * 1.5);
}

TEST(KernelModel, BasisFollowsTheMeasuredSizes) {
  const KernelModel model = sample_model(sample_device("sample"));
  EXPECT_EQ(model.gemm(GemmPass::kForward, 8192, 8192, 8192).basis, Basis::kCalibrated);
  EXPECT_EQ(model.gemm(GemmPass::kForward, 8192, 8192, 8191).basis, Basis::kInterpolated);
  EXPECT_EQ(model.gemm(GemmPass::kForward, 8192, 8193, 8192).basis, Basis::kExtrapolated);
  EXPECT_EQ(model.elementwise(Bytes{100}).basis, Basis::kExtrapolated);
  EXPECT_STREQ(basis_name(Basis::kCalibrated), "calibrated");
  EXPECT_STREQ(basis_name(Basis::kExtrapolated), "extrapolated");
}

// Large calls carry -12.5 % .. +25 %; twice that outside the measured sizes.
TEST(KernelModel, ExtrapolationWidensTheInterval) {
  const KernelModel model = sample_model(sample_device("sample"));
  const Estimate inside = model.gemm(GemmPass::kForward, 8192, 8192, 8192);
  expect_estimate(inside.low, inside.seconds * 0.875);
  expect_estimate(inside.high, inside.seconds * 1.25);
  const Estimate outside = model.gemm(GemmPass::kForward, 16384, 8192, 8192);
  expect_estimate(outside.low, outside.seconds * 0.75);
  expect_estimate(outside.high, outside.seconds * 1.5);
}

// A device with half the peak on twice the multiprocessors: one of them has a quarter of the rate, so the wave term is
// 4 x; the device-wide FLOP term 2 x; waves are counted over its own 200.
TEST(KernelModel, UnmeasuredDeviceScalesByItsDatasheet) {
  DeviceSpec device = sample_device("other");
  device.bf16_dense = FlopsPerSecond{500e12};
  device.multiprocessors = 200;
  device.memory_bandwidth = BytesPerSecond{1e12};
  device.host_link = BytesPerSecond{25e9};
  const KernelModel model = sample_model(device);
  EXPECT_FALSE(model.measured());
  // 4096 x 4096: 1024 tiles = 6 waves of 200.
  const double flops = 2.0 * 4096 * 4096 * 4096;
  const double sustained = 2.0 * 3584 * 4096 * 4096;
  const Estimate gemm = model.gemm(GemmPass::kBackwardWeight, 4096, 4096, 4096);
  expect_estimate(gemm.seconds, 8e-6 + 4 * 6 * 4608 * 1e-9 + 2 * flops * 1e-15 + 2 * sustained * 2e-16);
  EXPECT_EQ(gemm.basis, Basis::kDatasheet);
  expect_estimate(gemm.low, gemm.seconds * (1 - 0.375));  // three times the residuals
  expect_estimate(gemm.high, gemm.seconds * 1.75);
  expect_estimate(model.elementwise(Bytes{1 << 30}).seconds, 8e-6 + 4 * 1073741824.0 * 2.5e-13);
  expect_estimate(model.copy(CopyKind::kHostToDevice, Bytes{1 << 30}).seconds, 8e-6 + 2 * 1073741824.0 * 2e-11);
  EXPECT_EQ(model.description(),
            "kernels: other was not measured; times of sample (2020-01-02) scaled by peak, bandwidth and "
            "multiprocessors of the data sheet, slow-down beside communication as measured there");
}

// What a step's interval is made of agrees with what a large call's estimate says, measured or not: three times the
// residuals of -12.5 % and +25 %, and +-25 % where three times is less.
TEST(KernelModel, ResidualsFollowTheDevice) {
  for (const char* name : {"sample", "other"}) {
    const KernelModel model = sample_model(sample_device(name));
    const Estimate gemm = model.gemm(GemmPass::kForward, 8192, 8192, 8192);
    expect_estimate(gemm.low, gemm.seconds * (1 + model.residual_low(KernelKind::kGemm)));
    expect_estimate(gemm.high, gemm.seconds * (1 + model.residual_high(KernelKind::kGemm)));
  }
  const KernelModel other = sample_model(sample_device("other"));
  EXPECT_EQ(other.residual_low(KernelKind::kGemm), -0.375);
  EXPECT_EQ(other.residual_high(KernelKind::kGemm), 0.75);
  Calibration narrow = sample_calibration();
  narrow.classes["elementwise"].large = {20, -0.01, 0.02, 0.01, 0.01};
  narrow.classes["gemm"].large.low = -0.5;
  const KernelModel least(sample_device("other"), std::make_shared<const Calibration>(narrow));
  EXPECT_EQ(least.residual_low(KernelKind::kElementwise), -0.25);
  EXPECT_EQ(least.residual_high(KernelKind::kElementwise), 0.25);
  EXPECT_EQ(least.residual_low(KernelKind::kGemm), 0.1 - 1) << "an interval never reaches down to nothing";
}

// One row against a large weight: 1 x 8192 x 8192 reads 134 MB, far longer than its FLOPs.
TEST(KernelModel, ThinGemmIsBoundByMemory) {
  const KernelModel model = sample_model(sample_device("sample"));
  const double bytes = 2.0 * (8192 + 8193.0 * 8192);
  expect_estimate(model.gemm(GemmPass::kForward, 1, 8192, 8192).seconds, 8e-6 + bytes * 2.5e-13);
}

TEST(KernelModel, SpanAndSumsAgree) {
  const KernelModel model = sample_model(sample_device("sample"));
  const std::vector<AttentionPieceSize> pieces = {{300, 300, 45150}, {128, 1000, 128 * 1000}, {1, 17, 17}};
  const Estimate by_span = model.attention_backward(pieces, 8, 2, 128);
  const Estimate by_sum = model.attention_backward(attention_work(pieces), 8, 2, 128);
  EXPECT_EQ(by_span.seconds, by_sum.seconds);
  EXPECT_EQ(model.attention_forward(pieces, 8, 2, 128).seconds,
            model.attention_forward(attention_work(pieces), 8, 2, 128).seconds);
}

TEST(KernelModel, HandsOutTheFactorsOfTheCalibration) {
  const KernelModel model = sample_model(sample_device("sample"));
  EXPECT_EQ(model.launch_seconds(), 5e-6);
  EXPECT_EQ(model.overlap().transfer(OverlapClass::kMemory), 1.5);
  EXPECT_EQ(model.with_overlap_scale(0.5).overlap().transfer(OverlapClass::kMemory), 1.25);
  EXPECT_EQ(model.with_overlap_scale(0).overlap().transfer(OverlapClass::kMemory), 1);
  EXPECT_EQ(model.overlap_residual_low(), -0.375);
  EXPECT_EQ(model.overlap_residual_high(), 0.5);
  const KernelModel other = sample_model(sample_device("other"));
  EXPECT_EQ(other.overlap_residual_low(), -1) << "three times, but nothing is sped up";
  EXPECT_EQ(other.overlap_residual_high(), 1.5);
  EXPECT_EQ(model.residual_low(KernelKind::kGemm), -0.125);
  EXPECT_EQ(model.residual_high(KernelKind::kGemm), 0.25);
  EXPECT_EQ(model.calibration_name(), "sample");
  EXPECT_EQ(model.calibration_date(), "2020-01-02");
  EXPECT_EQ(model.description(), "kernels: measured on sample, 2020-01-02");
}

// Functions have terms for rows and columns: 16 us, 1e6 bytes, 512 rows, 2,048 columns; unknown ones are any other.
TEST(KernelModel, ElementwiseFunctionsHaveConstantsOfTheirOwn) {
  const KernelModel model = sample_model(sample_device("sample"));
  expect_estimate(model.elementwise(Bytes{1'000'000}, "swiglu", 512, 2048).seconds,
                  8e-6 + 1e6 * 2.5e-13 + 512 * 1e-10 + 2048 * 1e-9);
  EXPECT_EQ(model.elementwise(Bytes{1'000'000}, "gelu", 512, 2048).seconds,
            model.elementwise(Bytes{1'000'000}).seconds);
}

// The call follows from the pieces: squares of one size are a dense batch (2 x 64 heads of one tile, 100 at a time), of
// several a ragged call with idle slots; a mask that cuDNN cannot do in one call runs as our own kernel where that was
// measured.
TEST(KernelModel, PiecesDecideTheCall) {
  Calibration calibration = sample_calibration();
  const auto model_of = [&] {
    return KernelModel(sample_device("sample"), std::make_shared<const Calibration>(calibration));
  };
  const AttentionPieceSize square{128, 128, 128 * 129 / 2};
  const AttentionPieceSize longer{256, 256, 256 * 257 / 2};
  const auto forward = [&](const std::vector<AttentionPieceSize>& pieces, std::int64_t heads) {
    return model_of().attention_forward(pieces, heads, 1, 128).seconds;
  };
  // 128 items of 1 + 1 tiles on 100 multiprocessors: two rounds; busy with 128 tiles.
  expect_estimate(forward({square, square}, 64), 8e-6 + 4e-6 + 1.28 * 1e-7);
  // 64 items of 2 and then 64 pairs of 2 and 3: 64 + 36 begin; at 2 the next 82, at 3 (18 free) the last 10, of which
  // those of 3 end at 6. One idle slot a head: 64 / 100. Busy: 64 x (1 + 1 + 2).
  expect_estimate(forward({square, longer}, 64), 8e-6 + 6e-6 + 0.64 * 5e-7 + 2.56 * 1e-7);
  const AttentionPieceSize blocks{256, 256, 256 * 16};
  const double dense = forward({blocks}, 4);
  calibration.classes["attention/longhaul-hopper/forward/pieces"] =
      calibration.classes["attention/cudnn/forward/dense"];
  calibration.classes["attention/longhaul-hopper/forward/pieces"].constants[3] = 2.5e-6;
  EXPECT_GT(forward({blocks}, 4), dense);
}

// Classes that a calibration took from another device's say so.
TEST(KernelModel, ClassesOfTheDatasheetAreWide) {
  Calibration calibration = sample_calibration();
  calibration.classes["gemm"].source = ClassSource::kDatasheet;
  const KernelModel model(sample_device("sample"), std::make_shared<const Calibration>(calibration));
  const Estimate gemm = model.gemm(GemmPass::kForward, 8192, 8192, 8192);
  EXPECT_EQ(gemm.basis, Basis::kDatasheet);
  expect_estimate(gemm.low, gemm.seconds * (1 - 0.375));
  EXPECT_EQ(model.residual_low(KernelKind::kGemm), -0.375);
  EXPECT_EQ(model.copy(CopyKind::kHostToDevice, Bytes{4096}).basis, Basis::kCalibrated);
}

class LoadKernelModel : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("longhaul-cost-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(folder());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::filesystem::path folder() const { return root_ / "topologies" / "devices" / "calibration"; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder() / name) << text; }

  std::filesystem::path root_;
};

TEST_F(LoadKernelModel, TakesTheDeviceItselfElseTheNearest) {
  Calibration calibration = sample_calibration();
  write("sample.json", write_calibration(calibration, {"table.csv"}));
  calibration.name = "small";
  calibration.peak_flops_per_second = 300e12;
  calibration.memory_bytes_per_second = 1.5e12;
  write("small.json", write_calibration(calibration, {"table.csv"}));
  const Expected<KernelModel> itself = load_kernel_model(sample_device("small"), root_.string());
  ASSERT_TRUE(itself);
  EXPECT_EQ(itself->calibration_name(), "small");
  EXPECT_TRUE(itself->measured());
  DeviceSpec device = sample_device("other");
  device.bf16_dense = FlopsPerSecond{312e12};
  device.memory_bandwidth = BytesPerSecond{2e12};
  const Expected<KernelModel> nearest = load_kernel_model(device, root_.string());
  ASSERT_TRUE(nearest);
  EXPECT_EQ(nearest->calibration_name(), "small");
  EXPECT_FALSE(nearest->measured());
}

TEST_F(LoadKernelModel, NoCalibrationIsAnError) {
  const Expected<KernelModel> model = load_kernel_model(sample_device("sample"), root_.string());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().at(0).to_string(),
            folder().string() + ": holds no kernel calibration; expected at least one NAME.json");
}

TEST_F(LoadKernelModel, FaultsOfEveryFileAreReported) {
  write("a.json", "{");
  write("b.json", "[]");
  const Expected<KernelModel> model = load_kernel_model(sample_device("sample"), root_.string());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().front().file, (folder() / "a.json").string());
  EXPECT_EQ(model.error().back().file, (folder() / "b.json").string());
}

}  // namespace
}  // namespace longhaul
