// What communicators hold, by hand from NCCL's constants, and beside what two GPUs held in kept runs.
#include <gtest/gtest.h>

#include "sim/network/nccl/memory.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

std::int64_t mib(const NcclConnections& of, const NcclMachine& machine = {}) {
  const std::int64_t bytes = nccl_memory(machine, of).value;
  EXPECT_EQ(bytes % (2 * kMebibyte), 0);
  return bytes / kMebibyte;
}

// 24 collective channels, so 32 in all, of three pieces of 2 MiB, and two pieces: 196 MiB. Alone: 64 channels, 388.
TEST(NcclMemory, WhatACommunicatorHoldsBeforeItsFirstCall) {
  EXPECT_EQ(mib({2, 1, 2}), 32 * 6 + 4);
  EXPECT_EQ(mib({8, 1, 8}), 32 * 6 + 4);
  EXPECT_EQ(mib({1, 1, 1}), 64 * 6 + 4);
}

// The receiver's side: 512 KiB, 4.69 MiB, 4 MiB and a page are five pieces; the sender's side is one: 12 MiB a channel,
// 24 of a ring, 32 to and from a peer.
TEST(NcclMemory, Connections) {
  EXPECT_EQ(mib({2, 1, 2, true}), 196 + 24 * 12);
  EXPECT_EQ(mib({2, 1, 2, false, 1, 1}), 196 + 32 * 12);
  EXPECT_EQ(mib({2, 1, 2, false, 1, 0}), 196 + 32 * 2);
  EXPECT_EQ(mib({2, 1, 2, false, 0, 1}), 196 + 32 * 10);
  EXPECT_EQ(mib({8, 1, 8, true, 7, 7}), 196 + 24 * 12 + 7 * 32 * 12);
}

// Where the receiver reads, the sender has Simple's 4 MiB and a page, three pieces, and the receiver 5.2 MiB, three
// too: 6 MiB for each of 32 channels (12 links, two channels each, up to a power of two).
TEST(NcclMemory, AmpereReads) {
  NcclMachine machine;
  machine.gpu = NcclGpu::kAmpere;
  machine.nvlink_rate = 240;
  machine.nvlink_links = 12;
  const std::int64_t idle = mib({2, 1, 2}, machine);
  EXPECT_EQ(mib({2, 1, 2, false, 1, 0}, machine) - idle, 32 * 6);
  EXPECT_EQ(mib({2, 1, 2, false, 0, 1}, machine) - idle, 32 * 6);
}

// Device memory less tensors and scratch of two H200 with NCCL 2.28.9 (validate/data/runs), two communicators a rank:
// gathers in both 962 to 973 MiB; gathers in one and an all-to-all in the other 1059 to 1065.
TEST(NcclMemory, AsTwoGpusHeld) {
  EXPECT_NEAR(static_cast<double>(2 * mib({2, 1, 2, true})), 970, 10);
  EXPECT_NEAR(static_cast<double>(mib({2, 1, 2, true}) + mib({2, 1, 2, false, 1, 1})), 1062, 5);
}

TEST(NcclMemoryDeathTest, PeersAreOthers) {
  EXPECT_DEATH(static_cast<void>(nccl_memory(NcclMachine{}, {2, 1, 2, false, 2, 0})), "sends to 2");
}

}  // namespace
}  // namespace longhaul
