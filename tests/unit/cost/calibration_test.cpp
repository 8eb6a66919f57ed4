// Reading and writing calibration files: round trip, every error text, the JSON Schema.
#include "sim/cost/calibration.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/core/data_files.h"
#include "sim/core/json.h"
#include "tests/unit/cost/sample_calibration.h"
#include "tests/unit/error_texts.h"
#include "tests/unit/json_schema/schema_errors.h"

namespace longhaul {
namespace {

nlohmann::json sample_json() { return nlohmann::json::parse(write_calibration(sample_calibration(), {"table.csv"})); }

std::vector<std::string> calibration_errors(const nlohmann::json& json) {
  return texts(parse_calibration(json.dump(), "c.json"));
}

bool valid_calibration(const nlohmann::json& json) {
  const Expected<Json> schema_json = read_json_file(data_directory() + "/topologies/calibration.schema.json");
  EXPECT_TRUE(schema_json);
  return obeys(nlohmann::json::parse(schema_json->dump()), json);
}

TEST(Calibration, ReadsBackWhatItWrote) {
  const Calibration sample = sample_calibration();
  const std::string text = write_calibration(sample, {"table.csv"});
  const Expected<Calibration> read = parse_calibration(text, "c.json");
  ASSERT_TRUE(read);
  EXPECT_EQ(write_calibration(*read, {"table.csv"}), text);
  EXPECT_EQ(read->kernel(KernelKind::kGemm).constants, sample.kernel(KernelKind::kGemm).constants);
  EXPECT_EQ(read->kernel(KernelKind::kGemm).highest, (SizeKey{8192, 8192, 8192}));
  EXPECT_EQ(read->overlap.gemm.multiprocessors_per_channel, 0.5);
  EXPECT_EQ(read->overlap.transfer_beside_memory_kernel, 1.5);
  EXPECT_TRUE(read->overlap.gemm.holds_transfers);
  EXPECT_FALSE(read->overlap.attention.holds_transfers);
  EXPECT_EQ(read->overlap_residuals.low, -0.375);
}

TEST(Calibration, SchemaAcceptsTheSampleAndTheShippedFiles) {
  EXPECT_TRUE(valid_calibration(sample_json()));
  const std::string folder = data_directory() + "/topologies/devices/calibration";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Expected<Json> shipped = read_json_file(entry.path().string());
    ASSERT_TRUE(shipped);
    EXPECT_TRUE(valid_calibration(nlohmann::json::parse(shipped->dump()))) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 1);
}

TEST(Calibration, UnknownClassesAreNamed) {
  nlohmann::json json = sample_json();
  json["kernels"]["gemn"] = json["kernels"]["gemm"];
  EXPECT_EQ(
      calibration_errors(json),
      std::vector<std::string>{
          "c.json: /kernels/gemn: \"gemn\" is no class of kernels; expected gemm, elementwise, elementwise/FUNCTION, "
          "copy-d2d, copy-h2d, copy-d2h or attention/LIBRARY/PASS/FORM; did you mean \"gemm\"?"});
  EXPECT_FALSE(valid_calibration(json));
  json = sample_json();
  json["kernels"]["gemm"]["source"] = "guessed";
  EXPECT_EQ(calibration_errors(json),
            std::vector<std::string>{
                "c.json: /kernels/gemm/source: is \"guessed\"; expected one of measured, published, datasheet"});
}

TEST(Calibration, SchemaRefusesWhatTheReaderRefuses) {
  nlohmann::json json = sample_json();
  json["kernels"]["gemm"]["constants"]["seconds_per_call"] = -1;
  EXPECT_FALSE(valid_calibration(json));
  json = sample_json();
  json.erase("overlap");
  EXPECT_FALSE(valid_calibration(json));
  json = sample_json();
  json["kernels"]["gemm"]["measured_sizes"] = nlohmann::json::array({{1, 2}});
  EXPECT_FALSE(valid_calibration(json));
  json = sample_json();
  json["measured_on"] = "yesterday";
  EXPECT_FALSE(valid_calibration(json));
}

TEST(Calibration, MissingKeysAreAllNamed) {
  nlohmann::json json = sample_json();
  json.erase("measured_on");
  json["kernels"].erase("gemm");
  json["kernels"]["elementwise"]["constants"].erase("seconds_per_byte");
  const std::vector<std::string> errors = calibration_errors(json);
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_NE(errors[0].find("measured_on"), std::string::npos);
  EXPECT_NE(errors[1].find("gemm"), std::string::npos);
  EXPECT_NE(errors[1].find("the constants of this class of kernels"), std::string::npos);
  EXPECT_NE(errors[2].find("/kernels/elementwise/constants"), std::string::npos);
}

TEST(Calibration, WrongTypesAndRangesAreNamed) {
  nlohmann::json json = sample_json();
  json["launch_seconds"] = "fast";
  json["overlap"]["transfer"]["beside_gemm"] = 0.5;
  json["overlap"]["gemm"]["multiprocessors_per_channel"] = -1;
  json["device"]["multiprocessors"] = 1.5;
  const std::vector<std::string> errors = calibration_errors(json);
  ASSERT_EQ(errors.size(), 4U);
  EXPECT_NE(errors[0].find("/device/multiprocessors"), std::string::npos);
  EXPECT_NE(errors[1].find("/launch_seconds"), std::string::npos);
  EXPECT_NE(errors[1].find("\"fast\""), std::string::npos);
  EXPECT_EQ(errors[2], "c.json: /overlap/gemm/multiprocessors_per_channel: is -1; expected a number from 0 to 10");
  EXPECT_EQ(errors[3], "c.json: /overlap/transfer/beside_gemm: is 0.5; expected a number from 1 to 100");
}

TEST(Calibration, EveryFaultOfTheOverlapPartIsNamed) {
  nlohmann::json json = sample_json();
  json["overlap"].erase("host_copy");
  json["overlap"]["attention"].erase("beside_memory_kernel");
  json["overlap"]["transfer"]["beside_gem"] = 1;
  json["overlap"]["residuals"]["rows"] = 0;
  json["overlap"]["gemm"]["holds_transfers"] = 1;
  json["overlap"]["attention"].erase("holds_transfers");
  json["overlap"]["compute"] = 1.2;
  EXPECT_EQ(calibration_errors(json),
            (std::vector<std::string>{
                "c.json: /overlap/gemm/holds_transfers: is 1; expected true or false",
                "c.json: /overlap/attention/beside_memory_kernel: is missing; expected a number from 1 to 100",
                "c.json: /overlap/attention/holds_transfers: is missing; expected true or false",
                "c.json: /overlap/compute: is 1.2; expected an object",
                "c.json: /overlap/host_copy: is missing; expected an object of slow-down constants",
                "c.json: /overlap/transfer/beside_gem: unknown key; did you mean \"beside_gemm\"?",
                "c.json: /overlap/residuals/rows: is 0; expected an integer from 1 to 1000000"}));
  json = sample_json();
  json.erase("overlap");
  EXPECT_EQ(calibration_errors(json),
            std::vector<std::string>{"c.json: /overlap: is missing; expected an object of slow-down constants"});
}

TEST(Calibration, UnknownKeyNamesTheNearest) {
  nlohmann::json json = sample_json();
  json["kernels"]["gemm"]["constants"]["seconds_per_flopp"] = 1e-15;
  const std::vector<std::string> errors = calibration_errors(json);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_NE(errors[0].find("did you mean \"seconds_per_flop\"?"), std::string::npos);
}

TEST(Calibration, MeasuredSizesHaveTheKindsLength) {
  nlohmann::json json = sample_json();
  json["kernels"]["gemm"]["measured_sizes"] = nlohmann::json::array({{1, 2}});
  json["kernels"]["copy-d2d"]["measured_sizes"] = nlohmann::json::array();
  const std::vector<std::string> errors = calibration_errors(json);
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_NE(errors[0].find("/kernels/copy-d2d/measured_sizes"), std::string::npos);
  EXPECT_EQ(errors[1],
            "c.json: /kernels/gemm/measured_sizes: holds [1,2]; expected a non-empty list of lists of 3 integers");
}

TEST(Calibration, WrongSchemaIsNamed) {
  nlohmann::json json = sample_json();
  json["schema"] = "calibration/1";
  const std::vector<std::string> errors = calibration_errors(json);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_NE(errors[0].find("calibration/3"), std::string::npos);
}

}  // namespace
}  // namespace longhaul
