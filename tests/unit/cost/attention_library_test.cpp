// Attention libraries: the time of a call by hand, other generations, files and their faults, and the model's choice.
#include "sim/cost/attention_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/core/data_files.h"
#include "sim/core/json.h"
#include "tests/unit/cost/sample_calibration.h"
#include "tests/unit/json_schema/schema_errors.h"

namespace longhaul {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 100 multiprocessors of 1000 TFLOP/s in all: 10 TFLOP/s each, a pair's 512 FLOPs take 51.2 ps of matrix units.
AttentionLibrary sample_library() {
  AttentionLibrary library;
  library.name = "sample-library";
  library.date = "2020-01-02";
  library.measured_peak_flops_per_second = 1000e12;
  library.measured_multiprocessors = 100;
  library.matrix_share = {{GpuGeneration::kAmpere, 1.0}, {GpuGeneration::kHopper, 0.5}};
  library.forward = {4e-6, 200e-12, 1e-6, 2, 0, -0.1, 0.2};
  library.backward = {8e-6, 500e-12, 3e-6, 1, 0, -0.2, 0.1};
  return library;
}

AttentionWork work_of(const std::vector<AttentionPieceSize>& pieces) { return attention_work(pieces); }

void expect_close(double value, double expected) { EXPECT_NEAR(value, expected, 1e-12 * expected); }

// 1024 x 2048 without a mask, 100 heads: 8 query tiles of 128 x 2048 pairs, 16 key tiles of 128 x 1024.
TEST(AttentionLibrary, FullCallIsCallPairsAndTiles) {
  const AttentionWork work = work_of({{1024, 2048, 1024 * 2048}});
  const DeviceSpec device = sample_device("any");
  const double pairs = 1024.0 * 2048;
  expect_close(library_attention_seconds(sample_library(), device, true, work, 100, 100, 128),
               4e-6 + 200e-12 * pairs * 100 / 100 + 1e-6 * 8 * 100 / 100);
  expect_close(library_attention_seconds(sample_library(), device, false, work, 100, 100, 128),
               8e-6 + 500e-12 * pairs * 100 / 100 + 3e-6 * 16 * 100 / 100);
  // Half the head dimension, half of all but the call.
  expect_close(library_attention_seconds(sample_library(), device, true, work, 100, 100, 64),
               4e-6 + (200e-12 * pairs * 100 / 100 + 1e-6 * 8 * 100 / 100) / 2);
}

// Causal squares of 96 and 60 rows: a tile each, which goes through 2 blocks of 64 and through 1. The 156 query rows
// are memory's work, on a third of the measured bandwidth.
TEST(AttentionLibrary, BlocksAndRows) {
  const AttentionWork work = work_of({{96, 96, 96 * 97 / 2}, {60, 60, 60 * 61 / 2}});
  AttentionLibrary library = sample_library();
  for (AttentionLibraryPass* pass : {&library.forward, &library.backward}) {
    pass->masked_tail_tiles = 0;
    pass->seconds_per_row = 1e-9;
    pass->block_rows = kAttentionBlock;
  }
  const DeviceSpec device = sample_device("any");
  library.measured_memory_bytes_per_second = 3 * device.memory_bandwidth.value;
  const double pairs = 128.0 * 64 * (2 + 1);
  expect_close(library_attention_seconds(library, device, true, work, 100, 100, 128),
               4e-6 + (200e-12 * pairs + 1e-6 * 2 + 3e-9 * 156) * 100 / 100);
  expect_close(library_attention_seconds(library, device, false, work, 100, 100, 128),
               8e-6 + (500e-12 * pairs + 3e-6 * 2 + 3e-9 * 156) * 100 / 100);
}

// A piece of 1024 x 1024 and one of 128 x 256, full: the grid has 8 query tiles for each, 9 have work; 8 key tiles for
// each, 10 have work.
TEST(AttentionLibrary, BlocksBeyondAPieceAreIdle) {
  const AttentionWork work = work_of({{1024, 1024, 1024 * 1024}, {128, 256, 128 * 256}});
  AttentionLibrary library = sample_library();
  const DeviceSpec device = sample_device("any");
  const auto seconds = [&](bool forward) {
    return library_attention_seconds(library, device, forward, work, 100, 100, 128);
  };
  const double forward = seconds(true), backward = seconds(false);
  library.forward.seconds_per_idle_block = 5e-6;
  library.backward.seconds_per_idle_block = 7e-6;
  expect_close(seconds(true), forward + 5e-6 * (16 - 9) * 100 / 100);
  expect_close(seconds(false), backward + 7e-6 * (16 - 10) * 100 / 100);
}

// A causal square of 1024 has 8 query tiles; two mean ones end the call.
TEST(AttentionLibrary, MaskedCallEndsLate) {
  const AttentionWork work = work_of({{1024, 1024, 1024 * 1025 / 2}});
  const double tile = work.forward_pairs / 8;
  expect_close(library_attention_seconds(sample_library(), sample_device("any"), true, work, 100, 100, 128),
               4e-6 + 200e-12 * (8 * tile * 100 / 100 + 2 * tile) + 1e-6 * 8 * 100 / 100);
}

// Calls with a mask have a pair's time of their own: two causal squares of 1024 and a full piece, against the full one.
TEST(AttentionLibrary, MaskedCallsRunAnotherKernel) {
  const std::int64_t causal = 1024 * 1025 / 2;
  const AttentionWork masked = work_of({{1024, 1024, causal}, {1024, 1024, causal}, {128, 128, 128 * 128}});
  const AttentionWork full = work_of({{128, 128, 128 * 128}});
  AttentionLibrary library = sample_library(), other = sample_library();
  other.forward.seconds_per_masked_pair = 150e-12;
  other.backward.seconds_per_masked_pair = 600e-12;
  library.forward.seconds_per_pair = 150e-12;
  library.backward.seconds_per_pair = 600e-12;
  const DeviceSpec device = sample_device("any");
  for (const bool forward : {true, false}) {
    const auto seconds = [&](const AttentionLibrary& of, const AttentionWork& work) {
      return library_attention_seconds(of, device, forward, work, 100, 100, 128);
    };
    expect_close(seconds(other, masked), seconds(library, masked));
    expect_close(seconds(other, full), seconds(sample_library(), full));
  }
}

// One query tile of one head against 4096 keys is one item, on one of 100 multiprocessors; so is a key tile of 128 keys
// that 4096 queries see. Three items more, on others, take no longer.
TEST(AttentionLibrary, NoCallEndsBeforeItsLongestItem) {
  const DeviceSpec device = sample_device("any");
  const auto seconds = [&](bool forward, const std::vector<AttentionPieceSize>& pieces) {
    return library_attention_seconds(sample_library(), device, forward, work_of(pieces), 1, 1, 128);
  };
  const double pairs = 128.0 * 4096;
  expect_close(seconds(true, {{128, 4096, 128 * 4096}}), 4e-6 + 200e-12 * pairs + 1e-6);
  expect_close(seconds(false, {{4096, 128, 128 * 4096}}), 8e-6 + 500e-12 * pairs + 3e-6);
  expect_close(seconds(true, {{128, 4096, 128 * 4096}, {384, 128, 384 * 128}}), 4e-6 + 200e-12 * pairs + 1e-6);
}

// 100 pieces of 20 full rows against 256 keys. With 8 heads a key head a tile has 16 rows of each, so a piece has two
// that visit 32 x 256 pairs a head; 5 heads share as 4 do, tiles of 32 rows. A head of its own has a tile a piece; the
// backward pass packs none.
TEST(AttentionLibrary, HeadsOfAKeyHeadShareTiles) {
  const AttentionWork work = work_of(std::vector<AttentionPieceSize>(100, {20, 256, 20 * 256}));
  AttentionLibrary library = sample_library();
  library.forward.packs_heads = true;
  const DeviceSpec device = sample_device("any");
  const auto seconds = [&](std::int64_t q_heads, std::int64_t kv_heads) {
    return library_attention_seconds(library, device, true, work, q_heads, kv_heads, 128);
  };
  const double pairs = 100 * 256;
  expect_close(seconds(16, 2), 4e-6 + (200e-12 * 32 * pairs + 1e-6 * 200 / 8) * 16 / 100);
  expect_close(seconds(32, 2), 4e-6 + (200e-12 * 32 * pairs + 1e-6 * 200 / 8) * 32 / 100);
  expect_close(seconds(10, 2), 4e-6 + (200e-12 * 32 * pairs + 1e-6 * 100 / 4) * 10 / 100);
  expect_close(seconds(10, 10), 4e-6 + (200e-12 * 128 * pairs + 1e-6 * 100) * 10 / 100);
  expect_close(library_attention_seconds(library, device, false, work, 16, 2, 128),
               library_attention_seconds(library, device, false, work, 16, 16, 128));
}

// Ampere by hand: 50 multiprocessors of 400 TFLOP/s, so 8 TFLOP/s each: 64 ps of matrix units a pair. Measured: 102.4
// of 200 ps are matrix units at half the peak; the other 97.6 scale with clocks of 10e12 / 4096 and 8e12 / 2048: x
// 0.625.
TEST(AttentionLibrary, OtherGenerationScalesItsTwoParts) {
  DeviceSpec device = sample_device("older");
  device.generation = GpuGeneration::kAmpere;
  device.bf16_dense = FlopsPerSecond{400e12};
  device.multiprocessors = 50;
  const AttentionWork work = work_of({{1024, 2048, 1024 * 2048}});
  const double pair = 64e-12 + 97.6e-12 * 0.625;
  expect_close(library_attention_seconds(sample_library(), device, true, work, 100, 100, 128),
               4e-6 + pair * 1024 * 2048 * 100 / 50 + 1e-6 * 0.625 * 8 * 100 / 50);
}

// The same device with as many clocks as measured, at 3 GHz: its own are 8e12 / 2048 = 3.90625 GHz.
TEST(AttentionLibrary, OrTakesAsManyClocks) {
  DeviceSpec device = sample_device("older");
  device.generation = GpuGeneration::kAmpere;
  device.bf16_dense = FlopsPerSecond{400e12};
  device.multiprocessors = 50;
  AttentionLibrary library = sample_library();
  library.same_clocks = {GpuGeneration::kAmpere};
  library.forward.clock = 3e9;
  const AttentionWork work = work_of({{1024, 2048, 1024 * 2048}});
  const double slower = 3e9 / 3.90625e9;
  expect_close(library_attention_seconds(library, device, true, work, 100, 100, 128),
               4e-6 + slower * (200e-12 * 1024 * 2048 * 100 / 50 + 1e-6 * 8 * 100 / 50));
}

// One row of queries and 65536 keys of one head: the bytes rule, 2 passes of 2 bytes of 128 columns at 4 TB/s.
TEST(AttentionLibrary, NoCallIsFasterThanItsOperands) {
  AttentionLibrary library = sample_library();
  library.forward.seconds_per_pair = 1e-15;
  library.forward.seconds_per_tile = 0;
  const AttentionWork work = work_of({{1, 65536, 65536}});
  expect_close(library_attention_seconds(library, sample_device("any"), true, work, 1, 1, 128),
               4e-6 + 2.0 * 128 * 2 * (1 + 65536) / 4e12);
}

TEST(AttentionLibrary, TheModelRunsItInPlaceOfItsOwn) {
  const auto library = std::make_shared<const AttentionLibrary>(sample_library());
  const KernelModel own = sample_model(sample_device("sample"));
  const KernelModel with = own.with_attention_library(library);
  const std::vector<AttentionPieceSize> pieces = {{1024, 2048, 1024 * 2048}};
  const Estimate estimate = with.attention_forward(pieces, 10, 10, 128);
  expect_close(estimate.seconds, library_attention_seconds(*library, own.device(), true, work_of(pieces), 10, 10, 128));
  expect_close(estimate.low, estimate.seconds * 0.9);
  expect_close(estimate.high, estimate.seconds * 1.2);
  EXPECT_EQ(estimate.basis, Basis::kInterpolated);
  expect_close(-with.residual_low(KernelKind::kAttentionBackwardRagged), 0.2);
  expect_close(with.residual_high(KernelKind::kAttentionBackwardDense), 0.1);
  EXPECT_EQ(with.residual_low(KernelKind::kGemm), own.residual_low(KernelKind::kGemm));
  EXPECT_EQ(with.gemm(GemmPass::kForward, 64, 64, 64).seconds, own.gemm(GemmPass::kForward, 64, 64, 64).seconds);
  EXPECT_EQ(with.with_attention_library(nullptr).attention_forward(pieces, 10, 10, 128).seconds,
            own.attention_forward(pieces, 10, 10, 128).seconds);
  EXPECT_THAT(with.description(), HasSubstr("attention: sample-library (2020-01-02)"));
}

// FlashAttention-2's forward call is one kernel, its backward call begins with the row sums of dO; calls of the
// calibration's own library and variable-length ones of FlashAttention-3 begin with short kernels, too.
TEST(AttentionLibrary, SomeCallsStartWithTheirMainKernel) {
  const KernelModel own = sample_model(sample_device("sample"));
  EXPECT_FALSE(own.attention_starts_with_main_kernel(true));
  const auto starts = [&](const char* name, bool forward) {
    return own.with_attention_library(*read_attention_library(name, data_directory()))
        .attention_starts_with_main_kernel(forward);
  };
  EXPECT_TRUE(starts("flash-attention-2", true));
  EXPECT_FALSE(starts("flash-attention-2", false));
  EXPECT_FALSE(starts("flash-attention-3", true));
}

// A generation that was not measured: three times the residuals, at least a quarter.
TEST(AttentionLibrary, UnmeasuredGenerationsAreWider) {
  DeviceSpec device = sample_device("older");
  device.generation = GpuGeneration::kAmpere;
  const KernelModel model =
      sample_model(device).with_attention_library(std::make_shared<const AttentionLibrary>(sample_library()));
  const std::vector<AttentionPieceSize> pieces = {{1024, 2048, 1024 * 2048}};
  const Estimate estimate = model.attention_forward(pieces, 10, 10, 128);
  EXPECT_EQ(estimate.basis, Basis::kDatasheet);
  expect_close(estimate.low, estimate.seconds * 0.7);
  expect_close(estimate.high, estimate.seconds * 1.6);
  EXPECT_THAT(model.description(), HasSubstr("not measured on this generation"));
}

nlohmann::json shipped(const std::string& name) {
  const auto file = read_json_file(data_directory() + "/topologies/devices/attention/" + name + ".json");
  EXPECT_TRUE(file);
  return nlohmann::json::parse(file->dump());
}

bool valid_library(const nlohmann::json& json) {
  const auto file = read_json_file(data_directory() + "/topologies/attention-library.schema.json");
  EXPECT_TRUE(file);
  return obeys(nlohmann::json::parse(file->dump()), json);
}

TEST(AttentionLibrary, EveryNameButTheFirstHasAFile) {
  ASSERT_EQ(attention_library_names().front(), "cudnn");
  for (const std::string& name : attention_library_names()) {
    const auto library = read_attention_library(name, data_directory());
    EXPECT_EQ(library.has_value(), name != "cudnn") << name;
    if (!library) continue;
    EXPECT_EQ((*library)->name, name);
    EXPECT_TRUE(valid_library(shipped(name))) << name;
  }
  const auto third = read_attention_library("flash-attention-3", data_directory());
  ASSERT_TRUE(third);
  EXPECT_THAT(library_generations(**third), ElementsAre("hopper"));
  const auto second = read_attention_library("flash-attention-2", data_directory());
  ASSERT_TRUE(second);
  EXPECT_THAT(library_generations(**second), ElementsAre("ampere", "hopper"));
}

TEST(AttentionLibrary, EveryFaultOfAFileIsTold) {
  nlohmann::json json = shipped("flash-attention-2");
  json["schema"] = "attention-library/2";
  json["matrix_share"] = {{"ampere", 2}, {"hoper", 0.5}};
  json["forward"]["seconds_per_pair"] = 0;
  json["forward"]["seconds_per_masked_pair"] = -1;
  json["forward"]["packs_heads"] = 1;
  json["same_clocks"] = {"ampere", "hoper"};
  json["forward"]["starts_with_main_kernel"] = "yes";
  json["backward"]["packs_heads"] = true;
  json["backward"].erase("residuals");
  const auto read = parse_attention_library(json.dump(), "l.json");
  ASSERT_FALSE(read);
  std::vector<std::string> texts;
  for (const InputError& error : read.error()) texts.push_back(error.to_string());
  EXPECT_THAT(texts, ElementsAre(HasSubstr("l.json: /schema: is \"attention-library/2\""),
                                 HasSubstr("/matrix_share/ampere: is 2; expected a number from 0.01 to 1"),
                                 HasSubstr("/matrix_share/hoper: unknown key"),
                                 HasSubstr("/matrix_share: lacks the generation that was measured"),
                                 HasSubstr("/forward/seconds_per_pair: is 0; expected a number from"),
                                 HasSubstr("/forward/seconds_per_masked_pair: is -1; expected a number from"),
                                 HasSubstr("/forward/packs_heads: is 1; expected true or false"),
                                 HasSubstr("/forward/starts_with_main_kernel: is \"yes\"; expected true or false"),
                                 HasSubstr("/backward/residuals: is missing; expected an object of residuals"),
                                 HasSubstr("/backward/packs_heads: unknown key"),
                                 HasSubstr("/same_clocks: is no list of generations; expected some of ampere, hopper, "
                                           "blackwell")));
  nlohmann::json no_clock = shipped("flash-attention-2");
  no_clock["backward"].erase("clock_hz");
  const auto without = parse_attention_library(no_clock.dump(), "l.json");
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().front().to_string(),
              HasSubstr("/same_clocks: needs the clock of each pass; expected \"clock_hz\" in both"));
  EXPECT_FALSE(valid_library(json));
  nlohmann::json others = shipped("flash-attention-2");
  others["same_clocks"] = {"hopper", "blackwell"};
  const auto named = parse_attention_library(others.dump(), "l.json");
  ASSERT_FALSE(named);
  ASSERT_EQ(named.error().size(), 2U);
  EXPECT_EQ(named.error()[0].to_string(),
            "l.json: /same_clocks: names \"hopper\", which was measured; expected other generations");
  EXPECT_EQ(named.error()[1].to_string(),
            "l.json: /same_clocks: names \"blackwell\", which has no matrix share; expected generations of "
            "\"matrix_share\"");

  for (const auto& [key, value] : {std::pair{"block_rows", nlohmann::json(64)}, {"seconds_per_idle_block", 1e-7}}) {
    nlohmann::json wrong = shipped("flash-attention-3");
    wrong["forward"][key] = value;
    const auto refused = parse_attention_library(wrong.dump(), "l.json");
    ASSERT_FALSE(refused) << key;
    ASSERT_EQ(refused.error().size(), 1U);
    EXPECT_EQ(refused.error().front().to_string(),
              "l.json: /forward/packs_heads: is true beside smaller blocks or idle ones, which packed tiles do not "
              "count; expected \"block_rows\": 128 and no \"seconds_per_idle_block\"");
  }
  const auto missing = read_attention_library("none", data_directory());
  ASSERT_FALSE(missing);
}

}  // namespace
}  // namespace longhaul
