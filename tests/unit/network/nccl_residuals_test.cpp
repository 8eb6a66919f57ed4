#include "sim/network/nccl_residuals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace longhaul {
namespace {

using testing::HasSubstr;

// Reads `text` as topologies/nccl-residuals.json of a data directory of its own.
std::string errors_of(const std::string& text) {
  const auto folder = std::filesystem::temp_directory_path() / ("longhaul-residuals-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "topologies");
  std::ofstream(folder / "topologies" / "nccl-residuals.json") << text;
  const Expected<NcclResiduals> read = read_nccl_residuals(folder.string());
  std::filesystem::remove_all(folder);
  std::string all;
  if (read) return all;
  for (const InputError& error : read.error()) all += error.to_string() + "\n";
  return all;
}

TEST(NcclResiduals, ClassesFollowNodesNetworkAndSize) {
  const Expected<NcclResiduals> read = read_nccl_residuals(LONGHAUL_SOURCE_ROOT);
  ASSERT_TRUE(read) << read.error().front().to_string();
  const auto of = [&](ResidualNodes nodes, double bytes) { return read->of(nodes, bytes); };
  const auto& table = read->half_width;
  EXPECT_EQ(of(ResidualNodes::kOne, 0), table[0][0]);
  EXPECT_EQ(of(ResidualNodes::kOne, 65535), table[0][0]);
  EXPECT_EQ(of(ResidualNodes::kOne, 65536), table[0][1]);
  EXPECT_EQ(of(ResidualNodes::kSeveralKnown, 1048576), table[1][2]);
  EXPECT_EQ(of(ResidualNodes::kSeveralOther, 1e12), table[2][3]);
  for (const auto& row : table) {
    for (const double width : row) EXPECT_TRUE(width > 0 && width < 1) << width;
  }
}

TEST(NcclResiduals, FaultsAreNamed) {
  EXPECT_THAT(errors_of("{}"), HasSubstr("/schema"));
  const std::string head = R"({"schema": "nccl-residuals/1", "source": "s", "classes": [)";
  EXPECT_THAT(errors_of(head + "]}"), HasSubstr("/classes: lacks a class; expected all nodes in all bands"));
  EXPECT_THAT(errors_of(head + R"({"nodes": "two", "band_bytes": [0, 65536], "half_width": 0.1}]})"),
              HasSubstr("/classes/0/nodes"));
  EXPECT_THAT(errors_of(head + R"({"nodes": "one", "band_bytes": [0, 1], "half_width": -1}]})"),
              testing::AllOf(HasSubstr("/classes/0/half_width"), HasSubstr("/classes/0/band_bytes: is no band")));
  const std::string one = R"({"nodes": "one", "band_bytes": [67108864, null], "half_width": 0.1})";
  EXPECT_THAT(errors_of(head + one + "," + one + "]}"), HasSubstr("/classes/1/band_bytes: comes twice"));
}

}  // namespace
}  // namespace longhaul
