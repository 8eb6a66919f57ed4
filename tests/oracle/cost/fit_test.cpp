// The shipped calibration against the tables it came from: constants, residuals and accuracy cannot drift from the
// data.
#include "validate/fit/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>

#include "sim/core/data_files.h"
#include "sim/core/order_statistics.h"
#include "sim/cost/cost_rows.h"
#include "sim/cost/estimate.h"
#include "validate/fit/least_squares.h"
#include "validate/fit/residuals.h"
#include "validate/fit/table.h"

namespace longhaul {
namespace {

constexpr double kSame = 1e-9;  // relative

std::string tables() { return data_directory() + "/validate/data/h200"; }

const Fit& fit() {
  static const Fit result = [] {
    Expected<Fit> fitted = fit_h200(tables());
    EXPECT_TRUE(fitted);
    return *fitted;
  }();
  return result;
}

const Calibration& shipped() {
  static const Calibration result = [] {
    Expected<Calibration> read = read_calibration(data_directory() + "/topologies/devices/calibration/h200.json");
    EXPECT_TRUE(read);
    return *read;
  }();
  return result;
}

void expect_same(double value, double expected, const std::string& what) {
  EXPECT_NEAR(value, expected, kSame * std::abs(expected)) << what;
}

void expect_same(const ResidualBand& value, const ResidualBand& expected, const std::string& what) {
  EXPECT_EQ(value.rows, expected.rows) << what;
  expect_same(1 + value.low, 1 + expected.low, what);
  expect_same(1 + value.high, 1 + expected.high, what);
  expect_same(1 + value.median, 1 + expected.median, what);
  expect_same(1 + value.p90, 1 + expected.p90, what);
}

TEST(ShippedCalibration, RefitsToTheSameNumbers) {
  ASSERT_EQ(shipped().classes.size(), fit().calibration().classes.size());
  for (const auto& [name, ours] : shipped().classes) {
    const KernelCalibration* again = fit().calibration().find(name);
    ASSERT_NE(again, nullptr) << name;
    EXPECT_EQ(ours.source, ClassSource::kMeasured) << name;
    for (std::size_t term = 0; term < ours.constants.size(); ++term) {
      expect_same(ours.constants[term], again->constants[term], name + " constant");
    }
    expect_same(ours.timed_alone_seconds, again->timed_alone_seconds, name + " timed alone");
    EXPECT_EQ(ours.small_call_seconds, again->small_call_seconds);
    EXPECT_EQ(ours.measured, again->measured);
    expect_same(ours.small, again->small, name + " small");
    expect_same(ours.large, again->large, name + " large");
  }
  expect_same(shipped().launch_seconds, fit().calibration().launch_seconds, "launch");
}

// overlap.csv of one GPU by hand, 2026-11-29. Two factors a and b have the least sum of squared relative errors at
// (1/a + 1/b) / (1/a^2 + 1/b^2). GEMM beside memory kernels 2.97541 / 2.45480 and 3.08238 / 2.48820: 1.22515; attention
// 3.94760 / 3.52185 and 4.06419 / 3.78414: 1.09645. The memory kernels themselves 1.98450, 1.97399, 1.96045, 1.89620:
// 1.95255.
TEST(ShippedCalibration, OverlapFactorsFollowFromTheTable) {
  const OverlapConstants& overlap = shipped().overlap;
  EXPECT_NEAR(overlap.gemm.beside_memory_kernel, 1.22515, 2e-5);
  EXPECT_NEAR(overlap.attention.beside_memory_kernel, 1.09645, 2e-5);
  EXPECT_NEAR(overlap.memory_kernel_beside_compute, 1.95255, 2e-5);
}

// What docs/accuracy-log.md claims of two GPUs. A channel is about one multiprocessor.
TEST(ShippedCalibration, OverlapBesideTransfersIsAsClaimed) {
  const OverlapConstants& overlap = shipped().overlap;
  EXPECT_GT(overlap.attention.multiprocessors_per_channel, 0.9);
  EXPECT_LT(overlap.attention.multiprocessors_per_channel, 1.3);
  EXPECT_EQ(overlap.gemm.multiprocessors_per_channel, 1);
  EXPECT_TRUE(overlap.gemm.holds_transfers);
  EXPECT_TRUE(overlap.attention.holds_transfers);
  const auto median_error = [](OverlapTerm term) {
    std::vector<double> errors;
    const OverlapFit& overlap_fit = fit().overlap;
    for (std::size_t i = 0; i < overlap_fit.rows.size(); ++i) {
      if (overlap_fit.rows[i].term != term) continue;
      errors.push_back(std::abs(overlap_fit.left_out[i] / overlap_fit.rows[i].factor - 1));
    }
    return quantile(errors, 0.5);
  };
  EXPECT_LE(median_error(OverlapTerm::kAttentionMultiprocessors), 0.02);
  EXPECT_LE(median_error(OverlapTerm::kGemmMultiprocessors), 0.02);
  EXPECT_LE(median_error(OverlapTerm::kMemoryBytes), 0.01);
  EXPECT_LE(median_error(OverlapTerm::kTransferBesideGemm), 0.03);
  EXPECT_LE(median_error(OverlapTerm::kTransferBesideAttention), 0.03);
  EXPECT_LE(median_error(OverlapTerm::kTransferBesideMemoryKernel), 0.2);
}

TEST(ShippedCalibration, OverlapRefitsToTheSameNumbers) {
  const OverlapConstants& ours = shipped().overlap;
  const OverlapConstants& again = fit().calibration().overlap;
  constexpr double kFitted = 1e-7;  // a least value is found to half of a double's digits
  for (const auto& [a, b] : {std::pair{ours.gemm.beside_memory_kernel, again.gemm.beside_memory_kernel},
                             {ours.gemm.multiprocessors_per_channel, again.gemm.multiprocessors_per_channel},
                             {ours.attention.beside_memory_kernel, again.attention.beside_memory_kernel},
                             {ours.attention.multiprocessors_per_channel, again.attention.multiprocessors_per_channel},
                             {ours.compute_beside_host_copy, again.compute_beside_host_copy},
                             {ours.memory_kernel_beside_compute, again.memory_kernel_beside_compute},
                             {ours.host_copy_beside_compute, again.host_copy_beside_compute},
                             {ours.memory_bytes_per_transferred_byte, again.memory_bytes_per_transferred_byte},
                             {ours.transfer_beside_gemm, again.transfer_beside_gemm},
                             {ours.transfer_beside_attention, again.transfer_beside_attention},
                             {ours.transfer_beside_memory_kernel, again.transfer_beside_memory_kernel}}) {
    EXPECT_NEAR(a, b, kFitted * (1 + b));
  }
  EXPECT_EQ(shipped().overlap_residuals.rows, fit().calibration().overlap_residuals.rows);
  EXPECT_NEAR(shipped().overlap_residuals.low, fit().calibration().overlap_residuals.low, 1e-6);
  EXPECT_NEAR(shipped().overlap_residuals.high, fit().calibration().overlap_residuals.high, 1e-6);
}

TEST(ShippedCalibration, DatasheetIsThatOfTheDeviceFile) {
  const Expected<DeviceSpec> device = read_device("h200", data_directory());
  ASSERT_TRUE(device);
  EXPECT_EQ(device->bf16_dense.value, shipped().peak_flops_per_second);
  EXPECT_EQ(device->memory_bandwidth.value, shipped().memory_bytes_per_second);
  EXPECT_EQ(device->host_link.value, shipped().host_link_bytes_per_second);
  EXPECT_EQ(device->multiprocessors, shipped().multiprocessors);
}

// At every measured size the model gives what the fit gave: no other bound cuts in, and terms agree.
TEST(ShippedCalibration, ModelEqualsTheFitAtMeasuredSizes) {
  const Expected<DeviceSpec> device = read_device("h200", data_directory());
  ASSERT_TRUE(device);
  const Expected<KernelModel> model = load_kernel_model(*device, data_directory());
  ASSERT_TRUE(model);
  int gemms = 0;
  int lists = 0;
  for (const FittedRow& fitted : fit().kernels.rows) {
    const KernelRow& row = fitted.row;
    if (row.op == "gemm") {
      const Estimate queued = model->gemm(GemmPass::kForward, row.m, row.n, row.k);
      EXPECT_EQ(queued.basis, Basis::kCalibrated);
      expect_same(queued.seconds, fitted.fitted, "gemm");
      ++gemms;
    }
    // cuDNN's calls as the wrapper makes them.
    if (row.op != "attention" || (row.impl != "cudnn" && row.impl != "cudnn-ragged")) continue;
    const auto pieces = parse_pieces(row.pieces, row.mask);
    ASSERT_TRUE(pieces);
    if (row.impl == "cudnn-ragged" && pieces->size() == 1) continue;
    const Estimate queued = row.pass == "fwd"
                                ? model->attention_forward(*pieces, row.q_heads, row.kv_heads, row.head_dim)
                                : model->attention_backward(*pieces, row.q_heads, row.kv_heads, row.head_dim);
    EXPECT_EQ(queued.basis, Basis::kCalibrated) << row.name;
    expect_same(queued.seconds, fitted.fitted, row.name);
    ++lists;
  }
  EXPECT_EQ(gemms, 165);  // 168 less three that were throttled
  EXPECT_EQ(lists, 144 + 128);
}

// What docs/accuracy-log.md claims of rows that no fit saw, by group: at least 0.05 ms, spread under 10 %. A change of
// the model that loses accuracy fails here.
TEST(ShippedCalibration, HeldOutErrorsMeetTheirTargets) {
  struct Target {
    const char* classes;  // that begin so
    std::size_t rows;
    double median, p90;
  };
  for (const Target& target :
       {Target{"gemm", 111, 0.025, 0.07}, Target{"attention/cudnn/forward/dense", 47, 0.035, 0.09},
        Target{"attention/cudnn/backward/dense", 60, 0.035, 0.09},
        Target{"attention/cudnn/forward/ragged", 48, 0.05, 0.12},
        Target{"attention/cudnn/backward/ragged", 61, 0.05, 0.12},
        Target{"attention/longhaul-hopper/forward", 94, 0.05, 0.12},
        Target{"attention/longhaul-hopper/backward", 81, 0.05, 0.12}, Target{"elementwise", 116, 0.05, 0.25},
        Target{"copy", 100, 0.05, 0.12}}) {
    std::vector<double> errors;
    int inside = 0;
    for (const FittedRow& row : fit().kernels.rows) {
      if (!row.kernel_class.starts_with(target.classes) || row.row.seconds < 5e-5 || spread_of(row.row) >= 0.1)
        continue;
      errors.push_back(std::abs(row.held_out / row.row.seconds - 1));
      inside += row.held_out_low <= row.row.seconds && row.row.seconds <= row.held_out_high ? 1 : 0;
    }
    ASSERT_EQ(errors.size(), target.rows) << target.classes;
    EXPECT_LE(quantile(errors, 0.5), target.median) << target.classes;
    EXPECT_LE(quantile(errors, 0.9), target.p90) << target.classes;
    // With few rows the coverage itself is known to a few rows only; docs/accuracy-log.md has the figures.
    EXPECT_GE(inside, 0.8 * static_cast<double>(errors.size())) << target.classes;
  }
}

TEST(Datasheet, EveryShippedDeviceHasAModel) {
  for (const std::string& name : shipped_devices(data_directory())) {
    const Expected<DeviceSpec> device = read_device(name, data_directory());
    ASSERT_TRUE(device) << name;
    const Expected<KernelModel> model = load_kernel_model(*device, data_directory());
    ASSERT_TRUE(model) << name;
    const bool published = name == "h100" || name == "a100-80gb";
    EXPECT_EQ(model->measured(), name == "h200" || published);
    const Estimate large = model->gemm(GemmPass::kForward, 8192, 8192, 8192);
    EXPECT_EQ(large.basis, published        ? Basis::kCalibrated
                           : name == "h200" ? Basis::kInterpolated
                                            : Basis::kDatasheet)
        << name;
    // Slower than the peak, faster than half of it.
    const double least = 2.0 * 8192 * 8192 * 8192 / device->bf16_dense.value;
    EXPECT_GT(large.seconds, least) << name;
    EXPECT_LT(large.seconds, 2 * least) << name;
    EXPECT_LT(large.low, large.seconds);
    EXPECT_GT(large.high, large.seconds);
  }
}

// Rows made from known constants give them back; a term that the rows want negative comes out as zero.
TEST(LeastSquares, RecoversKnownConstants) {
  std::vector<Observation> rows;
  for (int i = 1; i <= 8; ++i) {
    const double x = i;
    const Terms terms = {1, x, x * x, 0};
    rows.push_back({terms, 3 + 2 * x + 0.5 * x * x, 1});
  }
  for (const Loss loss : {Loss::kSquared, Loss::kAbsolute}) {
    const Terms constants = fit_constants(rows, 3, loss);
    EXPECT_NEAR(constants[0], 2, 1e-9);  // 1 of the 3 was known
    EXPECT_NEAR(constants[1], 2, 1e-9);
    EXPECT_NEAR(constants[2], 0.5, 1e-9);
  }
  for (Observation& row : rows) row.measured -= 2 * row.terms[1] - 0.1;  // now 3.1 + 0.5 x^2 with a slope of zero
  for (Observation& row : rows) row.measured -= 0.05 * row.terms[1];
  EXPECT_EQ(fit_constants(rows, 3, Loss::kSquared)[1], 0);
}

// Five rows on t = x and one at twice that: squares bend, absolute errors hold the line within the 2 % smoothing.
TEST(LeastSquares, AbsoluteLossIgnoresAnOutlier) {
  std::vector<Observation> rows;
  for (int i = 1; i <= 5; ++i) rows.push_back({{static_cast<double>(i), 0, 0, 0}, static_cast<double>(i), 0});
  rows.push_back({{6, 0, 0, 0}, 12, 0});
  EXPECT_NEAR(fit_constants(rows, 1, Loss::kAbsolute)[0], 1, 0.01);
  // Squares of relative errors, by hand: minimise 5 (x - 1)^2 + (x / 2 - 1)^2, so x = 5.5 / 5.25.
  EXPECT_NEAR(fit_constants(rows, 1, Loss::kSquared)[0], 5.5 / 5.25, 1e-12);
}

// Three rows t = x, x, 2x at x = 1. Left out in turn, by hand: without a t = 1 row the others (1 and 2) give
// (1 + 1/2) / (1 + 1/4) = 1.2; without the t = 2 row, 1.
TEST(LeastSquares, LeaveOneOutByHand) {
  const std::vector<Observation> rows = {{{1, 0, 0, 0}, 1, 0}, {{1, 0, 0, 0}, 1, 0}, {{1, 0, 0, 0}, 2, 0}};
  const std::vector<double> predicted = leave_one_out(rows, 1, Loss::kSquared);
  EXPECT_NEAR(predicted[0], 1.2, 1e-12);
  EXPECT_NEAR(predicted[1], 1.2, 1e-12);
  EXPECT_NEAR(predicted[2], 1.0, 1e-12);
}

TEST(Quantile, IsLinearBetweenOrderStatistics) {
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0), 1);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 1), 4);
}

TEST(Table, NamesEveryFault) {
  const std::string file = (std::filesystem::temp_directory_path() / "longhaul-cost-table.csv").string();
  std::ofstream(file) << "# comment\nm,n,ms_mediam\n1,2,3\n1,2\n";
  const Expected<Table> table = Table::read(file, {"m", "ms_median"});
  ASSERT_FALSE(table);
  ASSERT_EQ(table.error().size(), 2U);
  EXPECT_EQ(table.error()[0].to_string(), file + ": line 2: has no column \"ms_median\"; did you mean \"ms_mediam\"?");
  EXPECT_EQ(table.error()[1].to_string(), file + ": line 4: has 2 fields; expected 3");
  std::ofstream(file) << "m\nx\n";
  const Expected<Table> words = Table::read(file, {"m"});
  ASSERT_TRUE(words);
  EXPECT_THROW(static_cast<void>(words->number(0, "m")), std::invalid_argument);
  std::filesystem::remove(file);
  EXPECT_FALSE(Table::read(file, {"m"}));
}

TEST(Fit, MissingTablesAreAllNamed) {
  const Expected<Fit> nothing = fit_h200("/nonexistent");
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().size(), 13U);
}

}  // namespace
}  // namespace longhaul
