// From the plan to a calibration without a GPU: a bench that takes as long as the shipped model says, its rows, the
// fit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "sim/core/data_files.h"
#include "sim/cost/calibration.h"
#include "tests/unit/calibrate/model_bench.h"
#include "validate/gpu/calibrate/fit_rows.h"
#include "validate/gpu/calibrate/run_calibration.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

const DeviceSpec& h200_device() {
  static const DeviceSpec device = *read_device("h200", data_directory());
  return device;
}

class FitTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto folder = std::filesystem::path(testing::TempDir()) / "calibrate-fit";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    ModelBench bench(*load_kernel_model(h200_device(), data_directory()));
    CalibrationOptions options;
    options.out = (folder / "model.json").string();
    options.classes = *parse_classes({}, "--only");
    ASSERT_TRUE(run_calibration(options, bench, {}));
    rows_ = *read_text_file(rows_file_of(options.out));
  }
  static Expected<KernelFit> fit(const std::string& text) {
    return fit_calibration_rows(text, "rows.csv", h200_device(), *base_calibration(h200_device(), data_directory()));
  }

  static std::string rows_;
};

std::string FitTest::rows_;

// The whole plan goes through the reader and the fit, and comes back as the model that it was made from.
TEST_F(FitTest, GivesBackTheModelThatTheRowsCameFrom) {
  const Expected<KernelFit> fitted = fit(rows_);
  ASSERT_TRUE(fitted) << fitted.error()[0].to_string();
  EXPECT_EQ(fitted->calibration.name, "h200");
  EXPECT_EQ(fitted->calibration.date, "2026-11-29");
  EXPECT_EQ(fitted->calibration.machine, "device: Scripted GPU, sm_90; driver: 1.0");
  std::map<std::string, ClassErrors> classes;
  for (const ClassErrors& of : class_errors(*fitted)) classes[of.kernel_class] = of;
  for (const char* name : {"gemm", "copy-d2d", "copy-h2d", "copy-d2h"}) {
    ASSERT_TRUE(classes.contains(name)) << name;
    EXPECT_GE(classes[name].counted, 30U) << name;
    EXPECT_LE(classes[name].median, 0.02) << name;
    EXPECT_LE(classes[name].p90, 0.03) << name;
    EXPECT_GE(classes[name].covered, 0.8) << name;
  }
  // What is written can be read, and says the same.
  const Expected<Calibration> again =
      parse_calibration(write_calibration(fitted->calibration, {"rows.csv"}), "written.json");
  ASSERT_TRUE(again) << again.error()[0].to_string();
  EXPECT_EQ(again->name, "h200");
}

TEST_F(FitTest, LeavesOutThrottledRows) {
  const std::size_t all = fit(rows_)->rows.size();
  std::string text = rows_;
  const std::size_t at = text.find(",quiet\n");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 6, ",throttled");
  EXPECT_EQ(fit(text)->rows.size(), all - 1);
}

TEST_F(FitTest, NamesWhatTheFileLacks) {
  std::string text = rows_;
  const std::size_t at = text.find("# date: ");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 8, "# Date: ");
  const auto undated = fit(text);
  ASSERT_FALSE(undated);
  EXPECT_EQ(undated.error()[0].to_string(),
            "rows.csv: has no line \"# date: ...\"; expected a file of longhaul calibrate");
  const auto empty = fit("# date: 2026-11-29\nop,pass,m,n,k,bytes,ms_median,ms_min,ms_max\n");
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error()[0].to_string(), HasSubstr("has no row whose clock held; expected measured calls"));
  const auto broken = fit("# date: 2026-11-29\nop,pass,m,n,k,ms_median,ms_min,ms_max\ngemm,fwd,8,8,,1,1,1\n");
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error()[0].to_string(), HasSubstr("rows.csv: line 3: k is \"\""));
}

}  // namespace
}  // namespace longhaul
