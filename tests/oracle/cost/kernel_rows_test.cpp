// Rows of measured kernels: every fault named; fits of rows that were made from known constants give these back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/core/data_files.h"
#include "sim/cost/cost_rows.h"
#include "sim/cost/kernel_features.h"
#include "validate/fit/fit.h"

namespace longhaul {
namespace {

std::vector<std::string> errors_of(const std::string& text) {
  const Expected<std::vector<KernelRow>> rows = parse_kernel_rows(text, "rows.csv");
  std::vector<std::string> texts;
  if (rows) return texts;
  for (const InputError& error : rows.error()) texts.push_back(error.to_string());
  return texts;
}

constexpr const char* kHeader =
    "op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces,bytes,impl,name,ms_median,ms_min,ms_max\n";

TEST(KernelRows, ReadsEveryKind) {
  const auto rows = parse_kernel_rows(std::string(kHeader) +
                                          "gemm,fwd,8,16,32,,,,,,,cublaslt,16x32/8,0.1,0.09,0.12\n"
                                          "attention,bwd,,,,8,2,128,causal,4x8;8x8,,cudnn-ragged,docs-4,1,1,1.1\n"
                                          "elementwise,,4,8,,,,,,,64,swiglu,swiglu-8/4,0.01,0.01,0.01\n"
                                          "copy,h2d,,,,,,,,,4096,,4096/h2d,0.02,0.02,0.02\n"
                                          "launch,,,,,,,,,,,,,0.005,0.004,0.006\n",
                                      "rows.csv");
  ASSERT_TRUE(rows) << rows.error().front().to_string();
  ASSERT_EQ(rows->size(), 5U);
  EXPECT_EQ((*rows)[0].k, 32);
  EXPECT_EQ(group_of((*rows)[0]), "16x32");
  EXPECT_NEAR(spread_of((*rows)[0]), 0.3, 1e-12);
  EXPECT_EQ((*rows)[1].pieces, "4x8;8x8");
  EXPECT_EQ((*rows)[2].m, 4);
  EXPECT_NEAR((*rows)[4].seconds, 5e-6, 1e-18);
}

TEST(KernelRows, NamesEveryFault) {
  EXPECT_EQ(
      errors_of(std::string(kHeader) + "gem,fwd,1,1,1,,,,,,,x,x,1,1,1\n"
                                       "gemm,fwd,0,1,1,,,,,,,x,x,1,1,nan\n"
                                       "attention,fwd,,,,6,4,128,causal,4x4,,,x,1,1,1\n"),
      (std::vector<std::string>{
          "rows.csv: line 2: op is \"gem\"; expected one of gemm, attention, elementwise, copy, launch; did you mean "
          "\"gemm\"?",
          "rows.csv: line 3: m is \"0\"; expected an integer from 1 to 1073741824",
          "rows.csv: line 3: ms_max is \"nan\"; expected a positive number of milliseconds",
          "rows.csv: line 4: q_heads is \"6\"; expected a multiple of kv_heads",
          "rows.csv: line 4: impl is \"\"; expected the library that was timed"}));
  EXPECT_EQ(
      errors_of("op,ms_median,ms_min\n"),
      std::vector<std::string>{
          "rows.csv: has no column \"ms_max\"; expected a table of measured kernel calls; did you mean \"ms_min\"?"});
}

// Dense attention by a library of its own: 10 us a call, 2 us a full tile, 3 us a causal one, on 132 multiprocessors.
TEST(FitKernels, GivesKnownConstantsBack) {
  std::vector<KernelRow> rows;
  for (const std::int64_t length : {1024, 2048, 4096, 8192}) {
    for (const char* mask : {"causal", "full"}) {
      KernelRow row;
      row.op = "attention";
      row.pass = "fwd";
      row.q_heads = row.kv_heads = 4;
      row.head_dim = 128;
      row.mask = mask;
      row.pieces = fmt::format("{0}x{0}", length);
      row.impl = "made-up";
      row.name = fmt::format("{}-{}", length, mask);
      const AttentionWork work = attention_work(*parse_pieces(row.pieces, row.mask));
      const KernelCall call = attention_call(attention_layout(row.impl), true, work, 4, 4, 128, 132);
      row.seconds = 10e-6 + 2e-6 * call.terms[1] + 3e-6 * call.terms[2];
      rows.push_back(row);
    }
  }
  const Expected<Fit> h200 = fit_h200(data_directory() + "/validate/data/h200");
  ASSERT_TRUE(h200);
  MeasuredDevice device = h200_device();
  device.name = "other";
  device.peak_flops_per_second /= 2;
  const Expected<KernelFit> fit = fit_kernels(device, rows, h200->calibration());
  ASSERT_TRUE(fit) << fit.error().front().to_string();
  const KernelCalibration* own = fit->calibration.find("attention/made-up/forward/dense");
  ASSERT_NE(own, nullptr);
  EXPECT_NEAR(own->constants[0], 10e-6, 1e-12);
  EXPECT_NEAR(own->constants[1], 2e-6, 1e-12);
  EXPECT_NEAR(own->constants[2], 3e-6, 1e-12);
  EXPECT_NEAR(fit->rows.front().held_out, rows.front().seconds, 1e-12);
  // What was not measured is the base's, at half the peak.
  const KernelCalibration* gemm = fit->calibration.find("gemm");
  ASSERT_NE(gemm, nullptr);
  EXPECT_EQ(gemm->source, ClassSource::kDatasheet);
  EXPECT_DOUBLE_EQ(gemm->constants[2], 2 * h200->calibration().find("gemm")->constants[2]);
}

TEST(FitKernels, NamesRequiredClassesWithoutRows) {
  const Expected<KernelFit> fit = fit_kernels(h200_device(), {}, Calibration{});
  ASSERT_FALSE(fit);
  EXPECT_EQ(fit.error().size(), required_classes().size());
  EXPECT_EQ(fit.error().front().to_string(),
            "h200: 0 rows of gemm; expected at least 6, or a calibration of another device to take it from");
}

}  // namespace
}  // namespace longhaul
