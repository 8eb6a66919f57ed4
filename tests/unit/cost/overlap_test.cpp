// The overlap model by hand: 100 multiprocessors, 4 TB/s of memory, 40 GB/s of host link.
#include "sim/cost/overlap.h"

#include <gtest/gtest.h>

#include "sim/cost/estimate.h"
#include "sim/cost/kernel_features.h"
#include "tests/unit/cost/sample_calibration.h"

namespace longhaul {
namespace {

OverlapModel model(double scale = 1) {
  return OverlapModel(sample_calibration().overlap, 100, BytesPerSecond{4e12}, BytesPerSecond{40e9}, scale);
}

TEST(OverlapModel, EveryKernelKindHasItsClass) {
  EXPECT_EQ(overlap_class(KernelKind::kGemm), OverlapClass::kGemm);
  EXPECT_EQ(overlap_class(KernelKind::kAttentionBackwardRagged), OverlapClass::kAttention);
  EXPECT_EQ(overlap_class(KernelKind::kAttentionForwardDense), OverlapClass::kAttention);
  EXPECT_EQ(overlap_class(KernelKind::kElementwise), OverlapClass::kMemory);
  EXPECT_EQ(overlap_class(KernelKind::kCopyDeviceToDevice), OverlapClass::kMemory);
  EXPECT_EQ(overlap_class(KernelKind::kCopyHostToDevice), OverlapClass::kHostCopy);
  EXPECT_EQ(overlap_class(KernelKind::kCopyDeviceToHost), OverlapClass::kHostCopy);
}

TEST(OverlapModel, NothingBesideIsOne) {
  for (int i = 0; i < kOverlapClassCount; ++i) {
    EXPECT_EQ(model().kernel(static_cast<OverlapClass>(i), {}), 1);
    EXPECT_EQ(OverlapModel().transfer(static_cast<OverlapClass>(i)), 1);
  }
}

// A channel takes half a multiprocessor of a GEMM and a whole one of attention: 40 channels leave 80 and 60 of 100.
TEST(OverlapModel, ChannelsTakeMultiprocessors) {
  Beside beside;
  beside.channels = 40;
  EXPECT_NEAR(model().kernel(OverlapClass::kGemm, beside), 100.0 / 80, 1e-12);
  EXPECT_NEAR(model().kernel(OverlapClass::kAttention, beside), 100.0 / 60, 1e-12);
  EXPECT_EQ(model().kernel(OverlapClass::kMemory, beside), 1);
  EXPECT_EQ(model().kernel(OverlapClass::kHostCopy, beside), 1);
  beside.channels = 70;  // more than half: the kernel keeps its fair share
  EXPECT_EQ(model().kernel(OverlapClass::kAttention, beside), 2);
}

// 40 channels of half a multiprocessor leave 80 of 100. 250 tiles are 3 waves alone. Beside the channels 20 blocks come
// late, with 20 tiles: 230 tiles are 3 waves on 80, and one more for the late ones; 270 are ceil(250 / 80) + 1 = 5
// of 3. 80 tiles fit beside the channels; of 81 one block comes late: 2 waves instead of 1. As measured on 132
// multiprocessors: 4096 x 4096 (512 tiles) beside 24 blocks (ceil(488 / 108) + 1) / 4 = 1.5, beside the 32 of an
// all-to-all (ceil(480 / 100) + 1) / 4 = 1.5 (1.53), and 16384 x 14336 (7,168 tiles) beside 24 (67 + 1) / 55 = 1.236.
TEST(OverlapModel, AGemmRunsInWavesOfTiles) {
  Beside beside;
  beside.channels = 40;
  EXPECT_NEAR(model().kernel(OverlapClass::kGemm, beside, 250), 4.0 / 3, 1e-12);
  EXPECT_NEAR(model().kernel(OverlapClass::kGemm, beside, 270), 5.0 / 3, 1e-12);
  EXPECT_EQ(model().kernel(OverlapClass::kGemm, beside, 80), 1);
  EXPECT_NEAR(model().kernel(OverlapClass::kGemm, beside, 81), 2, 1e-12);
  EXPECT_EQ(model().kernel(OverlapClass::kGemm, {}, 81), 1);
  EXPECT_NEAR(model().kernel(OverlapClass::kAttention, beside, 250), 100.0 / 60, 1e-12);
  OverlapConstants constants;
  constants.gemm.multiprocessors_per_channel = 1;
  const OverlapModel h200(constants, 132, BytesPerSecond{4e12}, BytesPerSecond{40e9});
  beside.channels = 24;
  EXPECT_NEAR(h200.kernel(OverlapClass::kGemm, beside, gemm_tiles(4096, 4096)), 1.5, 1e-12);
  EXPECT_NEAR(h200.kernel(OverlapClass::kGemm, beside, gemm_tiles(16384, 14336)), 68.0 / 55, 1e-12);
  beside.channels = 32;
  EXPECT_NEAR(h200.kernel(OverlapClass::kGemm, beside, gemm_tiles(4096, 4096)), 1.5, 1e-12);
}

// 750 GB/s sent and received, twice over memory, slowed by 1.5: 1 of 4 TB/s is gone, 3 are left. Two host copies more:
// 80 GB/s.
TEST(OverlapModel, MemoryIsSharedMaxMin) {
  Beside beside;
  beside.transferred_bytes_per_second = 750e9;
  EXPECT_NEAR(model().kernel(OverlapClass::kMemory, beside), 4.0 / 3, 1e-12);
  EXPECT_EQ(model().kernel(OverlapClass::kGemm, beside), 1);
  beside.host_copies = 2;
  EXPECT_NEAR(model().kernel(OverlapClass::kMemory, beside), 4 / 2.92, 1e-12);
  beside.transferred_bytes_per_second = 2250e9;
  EXPECT_EQ(model().kernel(OverlapClass::kMemory, beside), 2);
}

TEST(OverlapModel, KernelsAndCopiesAddTheirParts) {
  Beside beside;
  beside.memory_kernels = 1;
  EXPECT_EQ(model().kernel(OverlapClass::kGemm, beside), 1.25);
  EXPECT_EQ(model().kernel(OverlapClass::kAttention, beside), 1.125);
  EXPECT_EQ(model().kernel(OverlapClass::kMemory, beside), 2);
  beside.host_copies = 2;  // counts once for compute
  EXPECT_EQ(model().kernel(OverlapClass::kGemm, beside), 1.375);
  beside.channels = 40;
  EXPECT_NEAR(model().kernel(OverlapClass::kGemm, beside), 1.625, 1e-12);
  beside = {};
  beside.gemms = 1;
  EXPECT_EQ(model().kernel(OverlapClass::kMemory, beside), 2);     // as measured
  EXPECT_EQ(model().kernel(OverlapClass::kAttention, beside), 2);  // they share what bounds both
  EXPECT_EQ(model().kernel(OverlapClass::kHostCopy, beside), 1);
}

TEST(OverlapModel, TransfersSlowDownByTheClassBeside) {
  EXPECT_EQ(model().transfer(OverlapClass::kGemm), 1.25);
  EXPECT_EQ(model().transfer(OverlapClass::kAttention), 1.125);
  EXPECT_EQ(model().transfer(OverlapClass::kMemory), 1.5);
  EXPECT_EQ(model().transfer(OverlapClass::kHostCopy), 1);
}

TEST(OverlapModel, ScaleMultipliesWhatIsAdded) {
  Beside beside;
  beside.channels = 40;
  EXPECT_NEAR(model(2).kernel(OverlapClass::kGemm, beside), 1.5, 1e-12);
  EXPECT_EQ(model(2).transfer(OverlapClass::kMemory), 2);
  EXPECT_EQ(model(0).kernel(OverlapClass::kGemm, beside), 1);
  EXPECT_EQ(model(0).transfer(OverlapClass::kMemory), 1);
}

// Half the multiprocessors: the same channels take twice the part. A copy rate of 1 / (2.5e-13 s) is 4 TB/s.
TEST(OverlapModel, ADeviceThatWasNotMeasuredHasItsOwnSize) {
  DeviceSpec device = sample_device("other");
  device.multiprocessors = 80;
  device.memory_bandwidth = BytesPerSecond{2e12};
  const OverlapModel other = sample_model(device).overlap();
  Beside beside;
  beside.channels = 40;
  beside.transferred_bytes_per_second = 375e9;
  EXPECT_NEAR(other.kernel(OverlapClass::kGemm, beside), 80.0 / 60, 1e-12);
  EXPECT_NEAR(other.kernel(OverlapClass::kMemory, beside), 2 / 1.5, 1e-12);
  EXPECT_NEAR(sample_model(sample_device("sample")).overlap().kernel(OverlapClass::kMemory, beside), 4 / 3.5, 1e-12);
}

TEST(OverlapModel, KernelsHoldTransfersAsMeasured) {
  EXPECT_TRUE(model().holds_transfers(OverlapClass::kGemm));
  EXPECT_FALSE(model().holds_transfers(OverlapClass::kAttention));
  EXPECT_FALSE(model().holds_transfers(OverlapClass::kMemory));
  EXPECT_FALSE(model(0).holds_transfers(OverlapClass::kGemm)) << "switched off with all else";
  EXPECT_FALSE(OverlapModel().holds_transfers(OverlapClass::kGemm));
}

TEST(OverlapModelDeathTest, ScaleIsNotNegative) { EXPECT_DEATH(static_cast<void>(model(-1)), "scale -1"); }

// b blocks on 100 multiprocessors go in ceil(b / 100) waves; what the last one leaves free is there from its beginning.
TEST(OverlapModel, TheLastWaveLeavesMultiprocessorsFree) {
  EXPECT_DOUBLE_EQ(model().last_wave(1550), 1.0 / 16);
  EXPECT_DOUBLE_EQ(model().last_wave(201), 1.0 / 3);
  EXPECT_DOUBLE_EQ(model().last_wave(99), 1);  // one is free all along
  EXPECT_EQ(model().last_wave(200), 0);        // two full waves
  EXPECT_EQ(model().last_wave(0), 0);
}

}  // namespace
}  // namespace longhaul
