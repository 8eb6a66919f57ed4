// What NCCL chooses and how many channels it lays: against the facts of its sources and of measured switch points.
#include <gtest/gtest.h>

#include "sim/network/nccl/tuning.h"
#include "tests/unit/network/nccl/sizes.h"

namespace longhaul {
namespace {

NcclMachine hopper() { return NcclMachine{}; }

NcclMachine ampere() {
  NcclMachine machine;
  machine.gpu = NcclGpu::kAmpere;
  machine.nvlink_rate = 240;
  machine.nvlink_links = 12;
  machine.nic_rate = 25;
  machine.cpu = HostCpu::kAmd;
  machine.nvls = false;
  return machine;
}

NcclMachine blackwell() {
  NcclMachine machine;
  machine.gpu = NcclGpu::kBlackwell;
  machine.nvlink_rate = 721.8;
  return machine;
}

std::string choice(const NcclMachine& machine, NcclCollective collective, int domains, int per_domain, double bytes) {
  const NcclCall call{collective, domains * per_domain, domains, per_domain, bytes};
  const NcclChoice out = nccl_choose(machine, nccl_graph(machine, domains, per_domain), call);
  return std::string(nccl_name(out.algorithm)) + " " + std::string(nccl_name(out.protocol));
}

// graph/search.cc and graph/connect.cc: A100 6 x 40, twice that after duplication (12 x 20); H100 6 x 60 and 12 x 30;
// B200 8 x 90 and 16 x 45; collectives get twice as many.
TEST(NcclGraph, OneNodeHasTheChannelsOfTheSearch) {
  const NcclGraph a = nccl_graph(ampere(), 1, 8);
  EXPECT_EQ(a.ring_channels, 12);
  EXPECT_DOUBLE_EQ(a.ring_rate, 20);
  EXPECT_EQ(a.collective_channels, 24);
  EXPECT_EQ(a.nvls_heads, 0);
  const NcclGraph h = nccl_graph(hopper(), 1, 8);
  EXPECT_EQ(h.ring_channels, 12);
  EXPECT_DOUBLE_EQ(h.ring_rate, 30);
  EXPECT_EQ(h.collective_channels, 24);
  EXPECT_EQ(h.nvls_heads, 8);
  EXPECT_DOUBLE_EQ(h.nvls_rate, 40);  // the highest speed within 370.8 / 8
  EXPECT_EQ(h.nvls_channels, 16);
  const NcclGraph b = nccl_graph(blackwell(), 1, 8);
  EXPECT_EQ(b.ring_channels, 16);
  EXPECT_DOUBLE_EQ(b.ring_rate, 45);
  EXPECT_EQ(b.collective_channels, 32);
  EXPECT_DOUBLE_EQ(b.nvls_rate, 90);
  EXPECT_EQ(b.nvls_channels, 24);
}

// A800: 8 of the A100's 12 links, 160 GB/s: 4 x 40, then 8 x 20.
TEST(NcclGraph, FewerLinksGiveFewerChannels) {
  NcclMachine machine = ampere();
  machine.nvlink_rate = 160;
  const NcclGraph graph = nccl_graph(machine, 1, 8);
  EXPECT_EQ(graph.ring_channels, 8);
  EXPECT_DOUBLE_EQ(graph.ring_rate, 20);
}

// 2 x 8 H100 with 8 NDR NICs: 8 x 48, no duplication (under 50 GB/s with more than 4 channels), 16 for collectives.
// A100 with 8 HDR NICs: 8 x 24.
TEST(NcclGraph, TwoNodesFollowTheNics) {
  const NcclGraph h = nccl_graph(hopper(), 2, 8);
  EXPECT_EQ(h.ring_channels, 8);
  EXPECT_DOUBLE_EQ(h.ring_rate, 48);
  EXPECT_EQ(h.collective_channels, 16);
  const NcclGraph a = nccl_graph(ampere(), 2, 8);
  EXPECT_EQ(a.ring_channels, 8);
  EXPECT_DOUBLE_EQ(a.ring_rate, 24);
}

// Direct pairs: two GPUs of a board of four reach a third of the links, all four all of them.
TEST(NcclGraph, PairsReachOnlyTheirLinks) {
  NcclMachine machine = ampere();
  machine.nvswitch = false;
  machine.gpus_per_domain = 4;
  EXPECT_DOUBLE_EQ(nccl_graph(machine, 1, 2).nvlink_rate, 80);
  EXPECT_DOUBLE_EQ(nccl_graph(machine, 1, 4).nvlink_rate, 240);
}

// Switch points that measured tables of eight H100 and A100 show (and NCCL's estimate gives).
TEST(NcclChoice, AllReduceOfEightGpus) {
  const auto h = [](double bytes) { return choice(hopper(), NcclCollective::kAllReduce, 1, 8, bytes); };
  EXPECT_EQ(h(kKiB), "ring LL");
  EXPECT_EQ(h(kMiB), "ring LL");
  EXPECT_EQ(h(2 * kMiB), "NVLS Simple");
  EXPECT_EQ(h(1024 * kMiB), "NVLS Simple");
  const auto a = [](double bytes) { return choice(ampere(), NcclCollective::kAllReduce, 1, 8, bytes); };
  EXPECT_EQ(a(2 * kMiB), "ring LL");
  EXPECT_EQ(a(4 * kMiB), "ring LL128");
  EXPECT_EQ(a(16 * kMiB), "ring LL128");
  EXPECT_EQ(a(32 * kMiB), "ring Simple");
}

TEST(NcclChoice, FourGpusNeverUseNvls) {
  for (double bytes = kKiB; bytes < 1e10; bytes *= 2) {
    EXPECT_EQ(choice(hopper(), NcclCollective::kAllReduce, 1, 4, bytes).substr(0, 4), "ring") << bytes;
  }
}

TEST(NcclChoice, GatherAndScatterOfEightH100) {
  for (const NcclCollective collective : {NcclCollective::kAllGather, NcclCollective::kReduceScatter}) {
    EXPECT_EQ(choice(hopper(), collective, 1, 8, 4 * kMiB), "ring LL");
    EXPECT_EQ(choice(hopper(), collective, 1, 8, 8 * kMiB), "ring LL128");
    EXPECT_EQ(choice(hopper(), collective, 1, 8, 16 * kMiB), "ring LL128");
    EXPECT_EQ(choice(hopper(), collective, 1, 8, 32 * kMiB), "ring Simple");
  }
}

// Two GPUs go from LL straight to Simple: all-reduce at 1.7 MiB, all-gather at 2.1 MiB.
TEST(NcclChoice, TwoGpusNeverUseLl128) {
  EXPECT_EQ(choice(hopper(), NcclCollective::kAllReduce, 1, 2, 1.6 * kMiB), "ring LL");
  EXPECT_EQ(choice(hopper(), NcclCollective::kAllReduce, 1, 2, 1.8 * kMiB), "ring Simple");
  EXPECT_EQ(choice(hopper(), NcclCollective::kAllGather, 1, 2, 2.0 * kMiB), "ring LL");
  EXPECT_EQ(choice(hopper(), NcclCollective::kAllGather, 1, 2, 2.2 * kMiB), "ring Simple");
  for (double bytes = kKiB; bytes < 1e10; bytes *= 1.25) {
    EXPECT_NE(choice(hopper(), NcclCollective::kAllReduce, 1, 2, bytes), "ring LL128") << bytes;
  }
}

TEST(NcclChoice, TwoNodesOfH100ReduceInTreesThenWithNvls) {
  const auto h = [](double bytes) { return choice(hopper(), NcclCollective::kAllReduce, 2, 8, bytes); };
  EXPECT_EQ(h(kKiB), "tree LL");
  EXPECT_EQ(h(128 * kKiB), "tree LL");
  EXPECT_EQ(h(kMiB), "NVLSTree Simple");
  EXPECT_EQ(h(1024 * kMiB), "NVLSTree Simple");
}

TEST(NcclChoice, NvlsCanBeOffAndAnAlgorithmForced) {
  NcclMachine machine = hopper();
  machine.nvls = false;
  EXPECT_EQ(choice(machine, NcclCollective::kAllReduce, 1, 8, 1024 * kMiB), "ring Simple");
  machine = hopper();
  machine.forced = NcclAlgorithm::kNvls;
  EXPECT_EQ(choice(machine, NcclCollective::kAllReduce, 1, 8, kKiB), "NVLS Simple");
  machine = ampere();
  machine.forced = NcclAlgorithm::kNvls;  // not there: the ring stands in
  EXPECT_EQ(choice(machine, NcclCollective::kAllReduce, 1, 8, kKiB), "ring LL");
  EXPECT_EQ(choice(machine, NcclCollective::kAllReduce, 1, 8, 8 * kMiB), "ring LL128");
  EXPECT_EQ(choice(ampere(), NcclCollective::kAllReduce, 2, 8, kKiB), "tree LL");
  EXPECT_EQ(choice(machine, NcclCollective::kAllReduce, 2, 8, kKiB), "ring LL");
}

double broadcast_estimate(const NcclMachine& machine, int domains, int per_domain, NcclProtocol protocol) {
  const NcclCall call{NcclCollective::kBroadcast, domains * per_domain, domains, per_domain, 1};
  const auto time =
      nccl_estimate(machine, nccl_graph(machine, domains, per_domain), call, NcclAlgorithm::kRing, protocol);
  return time.value_or(-1);
}

// graph/tuning.cc: base + one hop where all rings pass the ranks in one order (one NVSwitch, or one NIC a node), else
// base + ranks x hop, with the tree's latency for Simple: 4 us over NVLink, 14 over the network.
TEST(NcclChoice, ABroadcastCountsEveryStepOfRingsThatDiffer) {
  using enum NcclProtocol;
  EXPECT_NEAR(broadcast_estimate(ampere(), 1, 8, kLl), 6.6 + 0.6, 1e-3);
  EXPECT_NEAR(broadcast_estimate(ampere(), 1, 8, kSimple), 8.4 + 3.4, 1e-3);
  EXPECT_NEAR(broadcast_estimate(ampere(), 2, 1, kLl), 6.6 + 2.7, 1e-3);
  EXPECT_NEAR(broadcast_estimate(ampere(), 32, 8, kLl), 6.6 + 256 * 2.7, 1e-3);
  EXPECT_NEAR(broadcast_estimate(ampere(), 32, 8, kLl128), 14 + 256 * 4, 1e-3);
  EXPECT_NEAR(broadcast_estimate(ampere(), 32, 8, kSimple), 8.4 + 256 * 14, 1e-3);
  NcclMachine direct = ampere();
  direct.nvswitch = false;
  direct.gpus_per_domain = 4;
  EXPECT_NEAR(broadcast_estimate(direct, 1, 4, kLl128), 14 + 4 * 1.9, 1e-3);
  EXPECT_NEAR(broadcast_estimate(direct, 1, 4, kSimple), 8.4 + 4 * 4, 1e-3);
  EXPECT_NEAR(broadcast_estimate(direct, 1, 2, kSimple), 8.4 + 3.4, 1e-3);
}

// Simple stores a chunk on every rank: over 256 ranks its 10 ms for 32 MiB must not be taken for the 1 ms of LL128.
TEST(NcclChoice, LargeBroadcastsOverManyRanksLeaveSimpleAlone) {
  EXPECT_EQ(choice(ampere(), NcclCollective::kBroadcast, 32, 8, 32 * kMiB), "ring LL128");
  EXPECT_EQ(choice(ampere(), NcclCollective::kBroadcast, 32, 8, 64 * kKiB), "ring LL");
  EXPECT_EQ(choice(ampere(), NcclCollective::kBroadcast, 2, 8, 256 * kMiB), "ring Simple");
  EXPECT_EQ(choice(hopper(), NcclCollective::kBroadcast, 32, 8, 4 * kMiB), "ring LL");
}

TEST(NcclChoice, OneRankANodeGathersWithPat) {
  NcclMachine machine = hopper();
  const NcclGraph graph = nccl_graph(machine, 4, 1);
  const NcclCall call{NcclCollective::kAllGather, 4, 4, 1, kMiB};
  EXPECT_TRUE(nccl_estimate(machine, graph, call, NcclAlgorithm::kPat, NcclProtocol::kSimple));
  EXPECT_FALSE(nccl_estimate(machine, graph, call, NcclAlgorithm::kPat, NcclProtocol::kLl));
  EXPECT_FALSE(nccl_estimate(machine, nccl_graph(machine, 2, 8), {NcclCollective::kAllGather, 16, 2, 8, kMiB},
                             NcclAlgorithm::kPat, NcclProtocol::kSimple));
}

TEST(NcclChoice, CollNetNeedsAFabricThatReduces) {
  NcclMachine machine = hopper();
  const NcclGraph graph = nccl_graph(machine, 4, 8);
  const NcclCall call{NcclCollective::kAllReduce, 32, 4, 8, 64 * kMiB};
  EXPECT_FALSE(nccl_estimate(machine, graph, call, NcclAlgorithm::kCollNetDirect, NcclProtocol::kSimple));
  EXPECT_FALSE(nccl_estimate(machine, graph, call, NcclAlgorithm::kNvls, NcclProtocol::kSimple));
  machine.sharp = true;
  EXPECT_TRUE(nccl_estimate(machine, graph, call, NcclAlgorithm::kCollNetDirect, NcclProtocol::kSimple));
  EXPECT_TRUE(nccl_estimate(machine, graph, call, NcclAlgorithm::kCollNetChain, NcclProtocol::kSimple));
  EXPECT_TRUE(nccl_estimate(machine, graph, call, NcclAlgorithm::kNvls, NcclProtocol::kSimple));
}

// NCCL's own estimate, by hand. Ring LL of 8 H100, 1 MiB: 6.6 + 14 x 0.6 = 15.0; rate min(141, 0.5 x 360) = 141 GB/s
// of bus, x 8 / 14 = 80.571 of algorithm: 1048576 / 80571 = 13.014 us.
TEST(NcclEstimate, RingLlByHand) {
  const NcclCall call{NcclCollective::kAllReduce, 8, 1, 8, kMiB};
  const auto time = nccl_estimate(hopper(), nccl_graph(hopper(), 1, 8), call, NcclAlgorithm::kRing, NcclProtocol::kLl);
  ASSERT_TRUE(time);
  EXPECT_NEAR(*time, 15.0 + 1048576 / (1000 * 141.0 * 8 / 14), 1e-9);
}

// Tree LL over two Intel nodes, 256 KiB: 6.8 + 2 (7 x 0.6 + 5) = 25.2; min(min(0.92 x 384, 8 x 41.4) / 3.8, 39) = 39,
// half of it, x 0.4 at 2^12 x 64 B: 7.8 GB/s.
TEST(NcclEstimate, TreeLlByHand) {
  const NcclCall call{NcclCollective::kAllReduce, 16, 2, 8, 256 * kKiB};
  const auto time = nccl_estimate(hopper(), nccl_graph(hopper(), 2, 8), call, NcclAlgorithm::kTree, NcclProtocol::kLl);
  ASSERT_TRUE(time);
  EXPECT_NEAR(*time, 25.2 + 262144 / 7800.0, 1e-9);
}

// Ring LL takes a channel for each 4 KiB of every rank's part, so at most S / (4096 n), at least one.
TEST(NcclChannels, ShortCallsTakeFew) {
  const NcclGraph graph = nccl_graph(hopper(), 1, 8);
  const auto channels = [&](double bytes, NcclProtocol protocol) {
    return nccl_channels(hopper(), graph, {NcclCollective::kAllReduce, 8, 1, 8, bytes}, NcclAlgorithm::kRing, protocol);
  };
  EXPECT_EQ(channels(8 * kKiB, NcclProtocol::kLl), 1);
  EXPECT_EQ(channels(256 * kKiB, NcclProtocol::kLl), 8);
  EXPECT_EQ(channels(768 * kKiB, NcclProtocol::kLl), 24);
  EXPECT_EQ(channels(8 * kMiB, NcclProtocol::kLl), 24);
  EXPECT_EQ(channels(320 * kKiB, NcclProtocol::kSimple), 10);  // 32 KiB each
  EXPECT_EQ(channels(50 * kKiB, NcclProtocol::kLl128), 10);    // 5 KiB each
}

// Eight H100: 16 KiB below 8 MiB, 32 KiB below 64 MiB, 64 KiB below 1 GiB, 128 KiB from there.
TEST(NcclChunks, NvlsGrowsWithTheCall) {
  const NcclGraph graph = nccl_graph(hopper(), 1, 8);
  const auto chunk = [&](double bytes) {
    return nvls_chunk(hopper(), graph, {NcclCollective::kAllReduce, 8, 1, 8, bytes}, NcclAlgorithm::kNvls) / kKiB;
  };
  EXPECT_EQ(chunk(8 * kMiB - 1), 16);
  EXPECT_EQ(chunk(8 * kMiB), 32);
  EXPECT_EQ(chunk(64 * kMiB - 1), 32);
  EXPECT_EQ(chunk(64 * kMiB), 64);
  EXPECT_EQ(chunk(1024 * kMiB - 1), 64);
  EXPECT_EQ(chunk(1024 * kMiB), 128);
}

// 16 / 8 / 4 channels a peer for 2 / 4 / 8 GPUs, one for 64 KiB; LL up to 16 KiB a peer since 2.29, up to 512 KiB (32
// channels) before.
TEST(NcclSends, ChannelsAndProtocol) {
  NcclMachine machine = hopper();
  machine.version = 22902;
  EXPECT_EQ(p2p_plan(machine, 2, 1, 8 * kMiB).channels, 16);
  EXPECT_EQ(p2p_plan(machine, 4, 1, 8 * kMiB).channels, 8);
  EXPECT_EQ(p2p_plan(machine, 8, 1, 8 * kMiB).channels, 4);
  EXPECT_EQ(p2p_plan(machine, 8, 1, 64 * kKiB).channels, 1);
  EXPECT_EQ(p2p_plan(machine, 8, 1, 65 * kKiB).channels, 2);
  EXPECT_EQ(p2p_plan(machine, 8, 1, 65 * kMiB).channels, 8);  // parts stay within 16 MiB
  EXPECT_TRUE(p2p_plan(machine, 8, 1, 16 * kKiB).ll);
  EXPECT_FALSE(p2p_plan(machine, 8, 1, 16 * kKiB + 1).ll);
  machine.version = 22703;
  EXPECT_TRUE(p2p_plan(machine, 8, 1, 512 * kKiB).ll);
  EXPECT_FALSE(p2p_plan(machine, 8, 1, 512 * kKiB + 1).ll);
  EXPECT_EQ(p2p_plan(machine, 8, 1, 16 * kKiB).channels, 2);  // parts of 8 KiB
  // 64 ranks over 8 nodes: 8 batches of 8 peers fill 32 channels with 4 a peer; NICs of 50 GB/s ask for 4.
  EXPECT_EQ(p2p_plan(machine, 64, 8, 8 * kMiB).channels, 4);
  EXPECT_EQ(p2p_plan(machine, 256, 32, 8 * kMiB).channels, 1);
}

// A pipeline edge of two GPUs takes 16 blocks, a ring hop of 8 takes 4, an all-to-all of 8 those of 7 peers, and no
// call more than 32. Nothing to send or to whom: no kernel.
TEST(NcclSends, ChannelsOfAGroup) {
  const NcclMachine machine = hopper();
  EXPECT_EQ(p2p_channels(machine, 2, 1, 1, 8 * kMiB), 16);
  EXPECT_EQ(p2p_channels(machine, 8, 1, 1, 8 * kMiB), 4);
  EXPECT_EQ(p2p_channels(machine, 8, 1, 7, 8 * kMiB), 28);
  EXPECT_EQ(p2p_channels(machine, 8, 1, 7, 65 * kMiB), 32);
  EXPECT_EQ(p2p_channels(machine, 256, 32, 255, 8 * kMiB), 32);
  EXPECT_EQ(p2p_channels(machine, 8, 1, 0, 0), 0);
  EXPECT_EQ(p2p_channels(machine, 8, 1, 1, 0), 0);
}

}  // namespace
}  // namespace longhaul
