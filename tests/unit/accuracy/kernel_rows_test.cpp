// Rows of one's own, judged by the shipped calibration.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sim/core/data_files.h"
#include "sim/cost/estimate.h"
#include "validate/accuracy/kernels.h"

namespace longhaul {
namespace {

constexpr const char* kHeader = "op,pass,m,n,k,bytes,impl,name,ms_median,ms_min,ms_max,batch_ms,stop\n";

Expected<KernelAccuracy> judged(const std::string& device, const std::string& rows) {
  const std::string file = (std::filesystem::path(testing::TempDir()) / "longhaul-own-rows.csv").string();
  std::ofstream(file) << kHeader << rows;
  return rows_accuracy(data_directory(), device, file);
}

// A GEMM counts by its batch, here twice what the model says: -50 %. A throttled row and a launch do not count.
TEST(RowsAccuracy, ShippedPredictionsAgainstRows) {
  const KernelModel model = *load_kernel_model(*read_device("h200", data_directory()), data_directory());
  const double ms = 1e3 * model.gemm(GemmPass::kForward, 4096, 4096, 4096).seconds;
  const std::string gemm = "gemm,fwd,4096,4096,4096,,cublaslt,a/1,9,9,9,";
  const auto accuracy = judged("h200", gemm + std::to_string(2 * ms) + ",quiet\n" + gemm + "1,throttled\n" +
                                           "launch,,,,,,,l/1,0.004,0.004,0.004,,quiet\n");
  ASSERT_TRUE(accuracy) << accuracy.error().front().to_string();
  ASSERT_EQ(accuracy->rows.size(), 1U);
  EXPECT_EQ(accuracy->groups.front().name, "gemm");
  EXPECT_EQ(accuracy->groups.front().rows, 1U);
  EXPECT_NEAR(accuracy->groups.front().bias, -50, 1e-3);
  EXPECT_FALSE(accuracy->groups.front().met());
}

// A kernel that the calibration has no class for is predicted as one of all of them.
TEST(RowsAccuracy, UnknownFunctionsAreOneOfAll) {
  const auto accuracy = judged("h200", "elementwise,,,,,1073741824,layer_norm,e/1,0.3,0.3,0.3,,quiet\n");
  ASSERT_TRUE(accuracy);
  const KernelModel model = *load_kernel_model(*read_device("h200", data_directory()), data_directory());
  EXPECT_DOUBLE_EQ(accuracy->rows.front().held_out, model.elementwise(Bytes{1073741824}).seconds);
}

TEST(RowsAccuracy, FaultsAreNamed) {
  EXPECT_FALSE(judged("h201", "copy,d2d,,,,1024,,c/1,1,1,1,,quiet\n"));
  const auto faulty = judged("h200", "gemm,fwd,0,8,8,,cublaslt,a/1,1,1,1,,quiet\n");
  ASSERT_FALSE(faulty);
  EXPECT_NE(faulty.error().front().to_string().find("line 2: m is \"0\""), std::string::npos);
}

}  // namespace
}  // namespace longhaul
