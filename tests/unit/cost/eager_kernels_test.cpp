// Kernels of an eager framework: a file and its faults, times by hand, other devices, kinds that were not measured.
#include "sim/cost/eager_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/core/data_files.h"
#include "sim/core/json.h"
#include "sim/cost/attention_library.h"
#include "sim/cost/estimate.h"
#include "tests/unit/cost/sample_calibration.h"
#include "tests/unit/json_schema/schema_errors.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

const char* const kFile = R"({
 "schema": "eager-kernels/1", "description": "of a test", "date": "2020-01-02", "sources": [],
 "memory_bytes_per_second": 2e12, "multiprocessor_clocks_per_second": 1e11,
 "kernels": {"joined_slices": {"seconds_per_byte": 1e-11, "host_seconds": 3e-6, "wait_seconds": 5e-5,
                               "bound": "memory", "low": -0.1, "high": 0.2}},
 "stalls": {"half_masks": {"seconds": 1e-5, "seconds_per_piece": 2e-5}}
})";

TEST(EagerKernels, AKernelIsItsWaitAndItsBytes) {
  const auto eager = parse_eager_kernels(kFile, "eager.json");
  ASSERT_TRUE(eager);
  EXPECT_EQ((*eager)->date, "2020-01-02");
  const KernelModel plain = sample_model(sample_device("any"));
  EXPECT_FALSE(plain.eager("joined_slices", Bytes{1 << 30}));
  EXPECT_EQ(plain.stall_seconds("half_masks", 10), 0);
  const KernelModel model = plain.with_eager_kernels(*eager);
  const double slower = 2e12 / model.device().memory_bandwidth.value;
  const double bytes = 1 << 30;
  const auto estimate = model.eager("joined_slices", Bytes{1 << 30});
  ASSERT_TRUE(estimate);
  const double expected = 5e-5 + 1e-11 * slower * bytes;
  ASSERT_GT(expected, plain.elementwise(Bytes{1 << 30}).seconds);
  EXPECT_NEAR(estimate->seconds, expected, 1e-12);
  // The kind's own spread; three times that on a device that nobody measured.
  const KernelModel measured = sample_model(sample_device("sample")).with_eager_kernels(*eager);
  const auto own = measured.eager("joined_slices", Bytes{1 << 30});
  ASSERT_TRUE(own);
  ASSERT_NE(own->basis, Basis::kDatasheet);
  EXPECT_NEAR(own->low / own->seconds, 0.9, 1e-12);
  EXPECT_NEAR(own->high / own->seconds, 1.2, 1e-12);
  ASSERT_EQ(estimate->basis, Basis::kDatasheet);
  EXPECT_NEAR(estimate->low / estimate->seconds, 0.7, 1e-12);
  EXPECT_NEAR(estimate->high / estimate->seconds, 1.6, 1e-12);
  EXPECT_EQ(model.eager_issue_seconds("joined_slices"), 3e-6);
  EXPECT_FALSE(model.eager("indexed_rows", Bytes{8}));
  EXPECT_NEAR(model.stall_seconds("half_masks", 10), 1e-5 + 2e-4, 1e-12);
  EXPECT_EQ(model.stall_seconds("read_values", 10), 0);
}

// A kind that multiprocessors hold up: 1e11 clocks a second measured, so on the sample as much longer as it has fewer,
// whatever its memory; never less than any element-wise kernel takes.
TEST(EagerKernels, AKindThatMemoryDoesNotBindScalesWithTheMultiprocessors) {
  nlohmann::json json = nlohmann::json::parse(kFile);
  json["kernels"]["joined_slices"]["bound"] = "multiprocessors";
  json["kernels"]["joined_slices"]["wait_seconds"] = 0;
  const auto eager = parse_eager_kernels(json.dump(), "eager.json");
  ASSERT_TRUE(eager);
  const KernelModel model = sample_model(sample_device("any")).with_eager_kernels(*eager);
  // Hopper: dense bf16 FLOPs a clock at the peak, whose clock is below the highest.
  const double clocks = model.device().bf16_dense.value / 4096 * 1980 / 1830;
  ASSERT_EQ(model.device().generation, GpuGeneration::kHopper);
  EXPECT_NEAR(multiprocessor_clocks(model.device()), clocks, 1);
  const auto estimate = model.eager("joined_slices", Bytes{1 << 30});
  ASSERT_TRUE(estimate);
  EXPECT_NEAR(estimate->seconds, 1e-11 * (1 << 30) * 1e11 / clocks, 1e-9);
  json["kernels"]["joined_slices"]["seconds_per_byte"] = 1e-15;
  const auto fast = parse_eager_kernels(json.dump(), "eager.json");
  ASSERT_TRUE(fast);
  const KernelModel floored = sample_model(sample_device("any")).with_eager_kernels(*fast);
  EXPECT_EQ(floored.eager("joined_slices", Bytes{1 << 30})->seconds, floored.elementwise(Bytes{1 << 30}).seconds);
}

TEST(EagerKernels, ReportsEveryFault) {
  nlohmann::json json = nlohmann::json::parse(kFile);
  json["kernels"]["joined_slices"].erase("host_seconds");
  json["kernels"]["joined_slices"]["bound"] = "luck";
  json.erase("multiprocessor_clocks_per_second");
  json["stalls"]["half_masks"]["seconds"] = -1;
  json["more"] = 1;
  const auto eager = parse_eager_kernels(json.dump(), "eager.json");
  ASSERT_FALSE(eager);
  std::string text;
  for (const auto& error : eager.error()) text += error.to_string() + "\n";
  for (const char* part : {"/kernels/joined_slices/host_seconds", "/kernels/joined_slices/bound",
                           "/multiprocessor_clocks_per_second", "/stalls/half_masks/seconds", "/more"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_FALSE(parse_eager_kernels("{", "eager.json"));
  EXPECT_FALSE(read_eager_kernels("/nowhere"));
}

TEST(EagerKernels, TheShippedFileFollowsItsSchema) {
  ASSERT_TRUE(read_eager_kernels(data_directory()));
  const auto schema_file = read_json_file(data_directory() + "/topologies/eager-kernels.schema.json");
  const auto file = read_json_file(data_directory() + "/topologies/devices/eager/pytorch.json");
  ASSERT_TRUE(schema_file);
  ASSERT_TRUE(file);
  const auto schema_json = nlohmann::json::parse(schema_file->dump());
  auto json = nlohmann::json::parse(file->dump());
  EXPECT_EQ(schema_errors(schema_json, json), "");
  json["kernels"]["another"] = nlohmann::json::object();
  EXPECT_FALSE(obeys(schema_json, json));
}

}  // namespace
}  // namespace longhaul
