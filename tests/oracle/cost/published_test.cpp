// Calibrations from published tables: the factor in closed form, what may move and what not, the shipped files.
#include "validate/fit/published.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "sim/core/data_files.h"
#include "sim/cost/estimate.h"

namespace longhaul {
namespace {

Calibration shipped_calibration(const std::string& name) {
  const auto read = read_calibration(data_directory() + "/topologies/devices/calibration/" + name + ".json");
  EXPECT_TRUE(read) << (read ? "" : read.error().front().to_string());
  return read ? *read : Calibration{};
}

DeviceSpec device(const std::string& name) { return *read_device(name, data_directory()); }

PublishedFit fit(const std::string& name) {
  const auto fitted = fit_published(name, data_directory(), shipped_calibration("h200"));
  EXPECT_TRUE(fitted) << (fitted ? "" : fitted.error().front().to_string());
  return *fitted;
}

// Prior 0.1, one table of two rows with e = 0.1 and r = 0.1 sqrt(2): v = 0.01 + 0.02 / 2 = 0.02, mean of the ratios
// 0.3. x = (0.3 / 0.02) / (1 / 0.01 + 1 / 0.02) = 15 / 150 = 0.1; variance 1 / 150.
TEST(WorkFactor, LiesBetweenPriorAndTable) {
  const std::map<std::string, PublishedSource> tables = {{"a", {true, 0.1, 0.1 * std::sqrt(2)}}, {"b", {true, 0.1, 0}}};
  WorkFactor factor = work_factor({{"a", {0.2, 0.4}}}, tables, 0.1);
  EXPECT_NEAR(std::log(factor.factor), 0.1, 1e-12);
  EXPECT_NEAR(factor.deviation, std::sqrt(1.0 / 150), 1e-12);
  EXPECT_EQ(factor.rows, 2u);
  // A second table, one row of -0.2 with v = 0.01: (15 - 20) / (150 + 100).
  factor = work_factor({{"a", {0.2, 0.4}}, {"b", {-0.2}}}, tables, 0.1);
  EXPECT_NEAR(std::log(factor.factor), -0.02, 1e-12);
  EXPECT_NEAR(factor.deviation, std::sqrt(1.0 / 250), 1e-12);
  // Many rows of one table do not make it surer than its own error: x -> 0.3 / 0.01 / (100 + 100).
  const std::vector<double> many(100'000, 0.3);
  EXPECT_NEAR(std::log(work_factor({{"a", many}}, tables, 0.1).factor), 0.15, 1e-4);
  factor = work_factor({}, tables, 0.1);
  EXPECT_EQ(factor.factor, 1);
  EXPECT_NEAR(factor.deviation, 0.1, 1e-12);
}

void expect_same_band(const ResidualBand& a, const ResidualBand& b, const std::string& what) {
  EXPECT_EQ(a.rows, b.rows) << what;
  EXPECT_NEAR(a.low, b.low, 1e-9) << what;
  EXPECT_NEAR(a.high, b.high, 1e-9) << what;
}

TEST(ShippedPublished, RefitsToTheSameNumbers) {
  for (const std::string& name : published_devices()) {
    const Calibration again = fit(name).calibration, file = shipped_calibration(name);
    ASSERT_EQ(file.classes.size(), again.classes.size()) << name;
    EXPECT_EQ(file.overlap_source, ClassSource::kDatasheet);
    EXPECT_EQ(file.machine, again.machine);
    for (const auto& [kernel_class, ours] : file.classes) {
      const KernelCalibration* other = again.find(kernel_class);
      ASSERT_NE(other, nullptr) << kernel_class;
      EXPECT_EQ(ours.source, other->source) << kernel_class;
      EXPECT_EQ(ours.measured, other->measured) << kernel_class;
      for (std::size_t i = 0; i < ours.constants.size(); ++i) {
        EXPECT_NEAR(ours.constants[i], other->constants[i], 1e-9 * std::abs(other->constants[i])) << kernel_class;
      }
      expect_same_band(ours.small, other->small, kernel_class);
      expect_same_band(ours.large, other->large, kernel_class);
    }
  }
}

// The form is the H200's: in each class all terms but the time of a call move by one factor beside the data sheet,
// which is not 1 in fitted classes and their ragged siblings alone.
TEST(ShippedPublished, OnlyFittedClassesMove) {
  const Calibration h200 = shipped_calibration("h200");
  for (const std::string& name : published_devices()) {
    const PublishedFit published = fit(name);
    for (const auto& [kernel_class, kernel] : published.calibration.classes) {
      const auto of = published.factors.find(kernel_class);
      const bool fitted = of != published.factors.end();
      EXPECT_EQ(kernel.source, fitted ? ClassSource::kPublished : ClassSource::kDatasheet) << kernel_class;
      double expected = fitted ? of->second.factor : 1;
      if (kernel_class.find("/ragged") != std::string::npos) {
        const auto dense = published.factors.find(kernel_class.substr(0, kernel_class.rfind('/')) + "/dense");
        if (dense != published.factors.end()) expected = dense->second.factor;
      }
      const DeviceSpec sheet = device(name);
      const double peak = h200.peak_flops_per_second / sheet.bf16_dense.value;
      const KernelCalibration& from = *h200.find(kernel_class);
      EXPECT_EQ(kernel.constants[0], from.constants[0]) << kernel_class;
      std::size_t i = 0;
      for (const TermSpec& term : *terms_of_class(kernel_class)) {
        double scale = expected;
        if (term.kind == TermKind::kFixed) scale = i == 0 ? 1 : expected;
        if (term.kind == TermKind::kDevice) scale *= peak;
        if (term.kind == TermKind::kMultiprocessor) scale *= peak * sheet.multiprocessors / 132;
        if (term.kind == TermKind::kMemory) scale *= 4.8e12 / sheet.memory_bandwidth.value;
        if (term.kind == TermKind::kHostLink) scale *= 63e9 / sheet.host_link.value;
        EXPECT_NEAR(kernel.constants[i], from.constants[i] * scale, 1e-9 * kernel.constants[i])
            << name << " " << kernel_class << " " << term.name;
        ++i;
      }
    }
  }
}

// Between the data sheet's prediction and the table's, and nearer to the table the less the prior is believed: another
// generation (A100) moves by 0.15^2 / (0.15^2 + 0.06^2 + 0.02^2 / 2) = 0.855 of the way, the H100 by 0.486.
TEST(ShippedPublished, GemmMovesAsFarAsVariancesSay) {
  for (const auto& [name, believed] :
       {std::pair{"a100-80gb", 0.0225 / (0.0225 + 0.0038)}, std::pair{"h100", 0.0036 / (0.0036 + 0.0038)}}) {
    const PublishedFit published = fit(name);
    const double call = shipped_calibration("h200").find("gemm")->constants[0] -
                        shipped_calibration("h200").find("gemm")->timed_alone_seconds;
    double mean = 0;
    int rows = 0;
    for (const FittedRow& row : published.rows) {  // held out: by the data sheet alone, as each class has one table
      if (row.kernel_class != "gemm") continue;
      mean += std::log((row.row.seconds - call) / (row.held_out - call));
      ++rows;
    }
    ASSERT_EQ(rows, 2);
    EXPECT_NEAR(std::log(published.factors.at("gemm").factor), believed * mean / rows, 1e-9) << name;
    EXPECT_LT(mean, 0);  // both tables are faster than the H200's rates scaled
  }
}

// The 90 % interval of the shipped constants holds nine in ten of the rows that were fitted, and the aside rows of
// other kernels at head dimensions that the form was fitted to.
TEST(ShippedPublished, IntervalsHoldTheirRows) {
  for (const std::string& name : published_devices()) {
    const PublishedFit published = fit(name);
    std::map<std::string, std::pair<int, int>> inside;
    for (const FittedRow& row : published.shipped) {
      auto& [in, all] = inside[row.kernel_class];
      in += row.held_out_low <= row.row.seconds && row.row.seconds <= row.held_out_high ? 1 : 0;
      ++all;
    }
    for (const auto& [kernel_class, counts] : inside) {
      EXPECT_GE(counts.first, 0.85 * counts.second) << name << " " << kernel_class;
    }
    for (const FittedRow& row : published.aside) {
      if (row.row.op != "gemm") continue;
      EXPECT_LE(row.held_out_low, row.row.seconds) << row.row.name;
      EXPECT_GE(row.held_out_high, row.row.seconds) << row.row.name;
    }
  }
}

// The nearest device by data sheet: the same chips now, not the H200.
TEST(ShippedPublished, NearestDevice) {
  for (const auto& [name, nearest] :
       {std::pair{"h800", "h100"}, std::pair{"a800", "a100-80gb"}, std::pair{"a100-40gb", "a100-80gb"},
        std::pair{"b200", "h200"}, std::pair{"h100", "h100"}, std::pair{"h200", "h200"}}) {
    const auto model = load_kernel_model(device(name), data_directory());
    ASSERT_TRUE(model);
    EXPECT_EQ(model->calibration_name(), nearest) << name;
    EXPECT_EQ(model->measured(), std::string(name) == nearest) << name;
  }
}

TEST(ShippedPublished, BasisAndDescriptionSayWhatStandsOnTables) {
  const KernelModel h100 = *load_kernel_model(device("h100"), data_directory());
  EXPECT_EQ(h100.gemm(GemmPass::kForward, 8192, 8192, 8192).basis, Basis::kCalibrated);
  EXPECT_EQ(h100.gemm(GemmPass::kForward, 7168, 8192, 8192).basis, Basis::kInterpolated);
  EXPECT_EQ(h100.gemm(GemmPass::kForward, 512, 8192, 8192).basis, Basis::kExtrapolated);
  EXPECT_EQ(h100.elementwise(Bytes{1 << 28}).basis, Basis::kDatasheet);
  EXPECT_EQ(h100.description(),
            "kernels of h100, 2026-11-29: published tables of attention/cudnn/backward/dense, "
            "attention/cudnn/forward/dense, gemm; all else: h200 (2026-11-30) scaled by the data sheet");
  // Slow-down was measured on the H200 alone: three times as wide as there.
  const KernelModel h200 = *load_kernel_model(device("h200"), data_directory());
  EXPECT_NEAR(h100.overlap_residual_high(), 3 * h200.overlap_residual_high(), 1e-9);
  const KernelModel h800 = *load_kernel_model(device("h800"), data_directory());
  EXPECT_EQ(h800.gemm(GemmPass::kForward, 8192, 8192, 8192).basis, Basis::kDatasheet);
  EXPECT_NE(h800.description().find("times of h100 (2026-11-29) scaled"), std::string::npos) << h800.description();
  EXPECT_NE(h800.description().find("(h100: published tables of"), std::string::npos) << h800.description();
}

class PublishedInput : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / "longhaul-published-rows-test";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::string errors() {
    const auto rows = read_published_rows("h100", folder_.string());
    if (rows) return "";
    return std::accumulate(rows.error().begin(), rows.error().end(), std::string(),
                           [](std::string text, const InputError& one) { return text + one.to_string() + "\n"; });
  }
  std::filesystem::path folder_;
};

TEST_F(PublishedInput, EveryFaultIsNamed) {
  const std::string header = "name,impl,op,pass,m,n,k,ms_median,ms_min,ms_max\n";
  write("h100.csv", header + "here/1,cublaslt,gemm,fwd,64,64,64,1,1,1\nthere/1,cublaslt,gemm,fwd,64,64,64,1,1,1\n");
  const std::string columns = "table,device,use,table_error,row_error\n";
  write("published-tables.csv", columns + "here,h100,fitting,0,0.1\nthere,a100-80gb,fitted,0.1,0.1\n");
  const std::string text = errors();
  EXPECT_NE(text.find("line 2: use is \"fitting\"; expected fitted or aside"), std::string::npos) << text;
  EXPECT_NE(text.find("line 2: has an error that is not positive"), std::string::npos) << text;
  EXPECT_NE(text.find("line 3: table \"there\" of h100 is not listed"), std::string::npos) << text;
  write("published-tables.csv", columns + "here,h100,fitted,0.1,0.1\nthere,h100,aside,0.1,0.1\n");
  EXPECT_EQ(errors(), "");
  std::filesystem::remove(folder_ / "published-tables.csv");
  EXPECT_NE(errors().find("published-tables.csv"), std::string::npos);
}

TEST_F(PublishedInput, RowsThatCannotBeFitted) {
  write("h100.csv",
        "name,impl,op,pass,m,n,k,bytes,ms_median,ms_min,ms_max\n"
        "here/1,layer_norm,elementwise,,64,64,,1024,1,1,1\nhere/2,,copy,d2d,,,,1024,0.001,0.001,0.001\n");
  write("published-tables.csv", "table,device,use,table_error,row_error\nhere,h100,fitted,0.1,0.1\n");
  const auto rows = read_published_rows("h100", folder_.string());
  ASSERT_TRUE(rows);
  const auto fitted = fit_published(device("h100"), *rows, device("h200"), shipped_calibration("h200"));
  ASSERT_FALSE(fitted);
  ASSERT_EQ(fitted.error().size(), 2u);
  EXPECT_NE(fitted.error()[0].to_string().find("line 2: is no call that a published table is fitted with"),
            std::string::npos);
  EXPECT_NE(fitted.error()[1].to_string().find("line 3: takes no longer than a call without work"), std::string::npos);
}

}  // namespace
}  // namespace longhaul
