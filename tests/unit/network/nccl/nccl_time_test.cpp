// Times of single algorithms against closed forms written out by hand, with round constants.
#include <gtest/gtest.h>

#include "sim/network/nccl/times.h"
#include "tests/unit/network/nccl/sizes.h"

namespace longhaul {
namespace {

void set(NcclConstants& constants, GpuTerm term, double value) {
  for (auto& group : constants.gpus) group[static_cast<std::size_t>(term)] = value;
}
void set(NcclConstants& constants, NetworkTerm term, double value) {
  for (auto& group : constants.networks) group[static_cast<std::size_t>(term)] = value;
}

NcclConstants round_constants() {
  NcclConstants c;
  set(c, GpuTerm::kStart, 4);
  set(c, GpuTerm::kLlStep, 1);
  set(c, GpuTerm::kLlRamp, 0.5);
  set(c, GpuTerm::kLlBlocks, 0.25);
  set(c, GpuTerm::kLlCopyStep, 0.125);
  set(c, GpuTerm::kLlHidden, 0.25);
  set(c, GpuTerm::kLlCopy, 0.75);
  set(c, GpuTerm::kLl128Start, 5);
  set(c, GpuTerm::kLl128Step, 1.5);
  set(c, GpuTerm::kLl128Efficiency, 0.8);
  set(c, GpuTerm::kSimpleStart, 8);
  set(c, GpuTerm::kSimpleStep, 3);
  set(c, GpuTerm::kSimpleLockstep, 0.25);
  set(c, GpuTerm::kSimpleDrift, 2.0 / 3);
  set(c, GpuTerm::kReduceCopy, 0.5);
  set(c, GpuTerm::kGatherCopy, 0.4);
  set(c, GpuTerm::kScatterCopy, 0.3);
  set(c, GpuTerm::kNvlsStart, 5);
  set(c, GpuTerm::kNvlsSync, 4);
  set(c, GpuTerm::kNvlsFill, 2);
  set(c, GpuTerm::kNvlsEfficiency, 1.25);
  set(c, GpuTerm::kP2pLl, 2);
  set(c, GpuTerm::kP2pLlRate, 5);
  set(c, GpuTerm::kP2pSimple, 6);
  set(c, GpuTerm::kP2pPeer, 0.2);
  set(c, GpuTerm::kP2pAloneRate, 25);
  set(c, GpuTerm::kP2pBothShare, 0.8);
  set(c, GpuTerm::kP2pEfficiency, 1);
  set(c, GpuTerm::kP2pMemoryPasses, 2);
  set(c, GpuTerm::kTreeStep, 3);
  set(c, GpuTerm::kTreeLlRate, 32);
  set(c, GpuTerm::kTreeChunkRate, 16);
  set(c, GpuTerm::kNvlsTreeFill, 2);
  set(c, NetworkTerm::kLlHop, 8);
  set(c, NetworkTerm::kLl128Hop, 10);
  set(c, NetworkTerm::kSimpleHop, 5);
  set(c, NetworkTerm::kLlShare, 0.125);
  set(c, NetworkTerm::kTreeLlShare, 0.05);
  set(c, NetworkTerm::kSimpleStart, 10);
  set(c, NetworkTerm::kNvlsTreeStart, 15);
  set(c, NetworkTerm::kNvlsTreeSync, 6);
  set(c, NetworkTerm::kEfficiency, 0.9);
  set(c, NetworkTerm::kTreeEfficiency, 0.95);
  set(c, NetworkTerm::kP2pEfficiency, 0.75);
  return c;
}

// A machine of round rates: NVLink 400 GB/s, memory 4000 GB/s, NICs 50 GB/s a GPU.
NcclMachine round_machine() {
  NcclMachine machine;
  machine.nvlink_rate = 400;
  machine.memory_rate = 4000;
  machine.version = 22902;
  return machine;
}

struct Bench {
  NcclConstants constants = round_constants();
  NcclMachine machine = round_machine();
  NcclGraph graph;
  NcclCall call;

  Bench(NcclCollective collective, int domains, int per_domain, double bytes)
      : graph(nccl_graph(machine, domains, per_domain)),
        call{collective, domains * per_domain, domains, per_domain, bytes} {}
  NcclCase at() const { return {constants, machine, graph, call}; }
};

// 8 ranks, 8 channels, 256 KiB: d = 262144 / 64 = 4096, so the ramp is full: 4 + 14 + (0.5 + 7 x 0.125) + 0.25
// = 19.625. A step moves S / n = 32768 bytes at half of 400 GB/s: 0.16384 us, hidden (0.25); the copy costs 0.75 of
// one: 0.12288.
TEST(RingLl, AStepsTransferHidesBehindItsLatency) {
  const Bench bench(NcclCollective::kAllReduce, 1, 8, 256 * kKiB);
  const Parts parts = ring_ll(bench.at(), 8);
  EXPECT_NEAR(parts.fixed_us, 19.625, 1e-12);
  EXPECT_NEAR(parts.bytes_us, 0.75 * 0.16384, 1e-12);
}

// 4 MiB: S / n = 524288 bytes take 2.62144 us a step, 2.37144 more than is hidden.
TEST(RingLl, LongStepsShow) {
  const Bench bench(NcclCollective::kAllReduce, 1, 8, 4 * kMiB);
  const Parts parts = ring_ll(bench.at(), 24);
  EXPECT_NEAR(parts.bytes_us, 14 * (2.62144 - 0.25) + 0.75 * 2.62144, 1e-9);
}

// Reduce-scatter writes to no user buffer on the way: no copy steps. One channel of d = 512: an eighth of the ramp.
TEST(RingLl, ReduceScatterHasNoCopySteps) {
  const Bench bench(NcclCollective::kReduceScatter, 1, 8, 4 * kKiB);
  EXPECT_NEAR(ring_ll(bench.at(), 1).fixed_us, 4 + 7 + 0.5 / 8, 1e-12);
}

// 8 MiB over 8 ranks: 4 + 5 + 7 x 1.5 = 19.5; (7 + 0.4 + 0.25) x 1 MiB at 320 GB/s.
TEST(RingLl128, GatherByHand) {
  const Bench bench(NcclCollective::kAllGather, 1, 8, 8 * kMiB);
  const Parts parts = ring_ll128(bench.at(), 24);
  EXPECT_NEAR(parts.fixed_us, 19.5, 1e-12);
  EXPECT_NEAR(parts.bytes_us, 7.65 * kMiB / 320e3, 1e-9);
}

// 384 MiB over 4 ranks, 24 channels: steps 6: 4 + 8 + 18 = 30. Share 96 MiB, (6 + 0.5) of it, and two loops of 24 x
// 2 MiB: the integral of 0.25 / sqrt(1 + x / (2/3)) from 0 to 2 is 0.25 x 2 x 2/3 x (sqrt(4) - 1) = 1/3 of a loop.
TEST(RingSimple, AllReduceByHand) {
  const Bench bench(NcclCollective::kAllReduce, 1, 4, 384 * kMiB);
  const Parts parts = ring_simple(bench.at(), 24);
  EXPECT_NEAR(parts.fixed_us, 30, 1e-12);
  EXPECT_NEAR(parts.bytes_us, (6.5 * 96 + 16) * kMiB / 400e3, 1e-6);
}

// Broadcast of 1 GiB to eight: 4 + 8 + 7 x 3 = 33; six ranks store a chunk of 512 KiB at 25 GB/s before they forward
// it; no copy, no lockstep: the bytes once at 400 GB/s.
TEST(RingSimple, BroadcastIsAPipeline) {
  const Bench bench(NcclCollective::kBroadcast, 1, 8, 1024 * kMiB);
  const Parts parts = ring_simple(bench.at(), 24);
  EXPECT_NEAR(parts.fixed_us, 33 + 6 * 524288 / 25e3, 1e-9);
  EXPECT_NEAR(parts.bytes_us, 1024 * kMiB / 400e3, 1e-9);
  EXPECT_NEAR(ring_ll(bench.at(), 24).bytes_us, 1024 * kMiB / 200e3 - 8 * 0.25, 1e-6);
}

// Eight ranks: chunk 32 KiB at 16 MiB, a loop is 32 KiB x 8 heads x 16 channels = 4 MiB, four loops. One takes
// 4 MiB x 1.75 / 500 GB/s = 14.680064 us and 4 us of sync; two more fill the pipeline.
TEST(Nvls, LoopsAndFill) {
  const Bench bench(NcclCollective::kAllReduce, 1, 8, 16 * kMiB);
  const Parts parts = nvls(bench.at());
  EXPECT_NEAR(parts.fixed_us, 4 + 5 + 6 * 4 + 2 * 14.680064, 1e-9);
  EXPECT_NEAR(parts.bytes_us, 4 * 14.680064, 1e-9);
}

// Up to the shortest loop, 16 KiB x 8 x 16 = 2 MiB (7.340032 us), the time is flat.
TEST(Nvls, ShortCallsTakeAShortestLoop) {
  for (const double bytes : {kKiB, kMiB, 2 * kMiB}) {
    const Bench bench(NcclCollective::kAllReduce, 1, 8, bytes);
    const Parts parts = nvls(bench.at());
    EXPECT_NEAR(parts.fixed_us, 4 + 5 + 3 * 4 + 2 * 7.340032, 1e-9);
    EXPECT_NEAR(parts.bytes_us, 7.340032, 1e-9);
  }
}

// 32 heads: a loop of their shortest chunks and 24 channels would be 12 MiB. A short call waits for 8 of them, 3 MiB x
// 2 x 71/72 at 1.25 x 721.8 GB/s; one of 6 MiB is one loop of 6 MiB.
TEST(Nvls, ManyHeadsAreServedSideBySide) {
  Bench bench(NcclCollective::kAllReduce, 1, 72, 4 * kKiB);
  bench.machine.gpu = NcclGpu::kBlackwell;
  bench.machine.nvlink_rate = 721.8;
  bench.machine.gpus_per_domain = 72;
  bench.graph = nccl_graph(bench.machine, 1, 72);
  EXPECT_EQ(bench.graph.nvls_heads, 32);
  const double one = 3 * kMiB * 2 * 71 / 72 / (1250 * 721.8);
  EXPECT_NEAR(nvls(bench.at()).bytes_us, one, 1e-9);
  EXPECT_NEAR(nvls(bench.at()).fixed_us, 4 + 5 + 3 * 4 + 2 * one, 1e-9);
  bench.call.bytes = 6 * kMiB;
  EXPECT_NEAR(nvls(bench.at()).bytes_us, 2 * one, 1e-9);
}

// A gather of the same four loops: 8/9 of all-reduce's bytes on the busier way of a link, half the hand-overs and half
// the fill: 4 + 5 + (4 + 1) x 2 + 1 x 14.680064 x 8 / 9. A scatter is a gather backwards.
TEST(Nvls, GatherAndScatterAreOneWay) {
  for (const NcclCollective one_way : {NcclCollective::kAllGather, NcclCollective::kReduceScatter}) {
    const Bench bench(one_way, 1, 8, 16 * kMiB);
    const Parts parts = nvls(bench.at());
    const double loop = 14.680064 * 8 / 9;
    EXPECT_NEAR(parts.fixed_us, 4 + 5 + 5 * 2 + loop, 1e-9);
    EXPECT_NEAR(parts.bytes_us, 4 * loop, 1e-9);
  }
}

// A rack of 72: NCCL gathers by NVLS from at most 32 ranks. A short all-reduce goes by NVLS (25 us in NCCL's table; 92
// by ring or tree of LL), a short gather by the ring in LL.
TEST(Nvls, ShortCallsOfARack) {
  NcclMachine rack = round_machine();
  rack.gpu = NcclGpu::kBlackwell;
  rack.nvlink_rate = 721.8;
  rack.gpus_per_domain = 72;
  const NcclConstants constants = round_constants();
  const NcclTime reduce = nccl_time(constants, rack, NcclCall{NcclCollective::kAllReduce, 72, 1, 72, 4 * kKiB});
  EXPECT_EQ(reduce.algorithm, NcclAlgorithm::kNvls);
  EXPECT_NEAR(reduce.total_us(), 4 + 5 + 3 * 4 + 3 * 3 * kMiB * 2 * 71 / 72 / (1250 * 721.8), 1e-9);
  for (const NcclCollective one_way : {NcclCollective::kAllGather, NcclCollective::kReduceScatter}) {
    for (double bytes = kKiB; bytes < 1e10; bytes *= 4) {
      const NcclTime time = nccl_time(constants, rack, NcclCall{one_way, 72, 1, 72, bytes});
      EXPECT_EQ(time.algorithm, NcclAlgorithm::kRing) << bytes;
    }
    const NcclTime brief = nccl_time(constants, rack, NcclCall{one_way, 72, 1, 72, 4 * kKiB});
    EXPECT_EQ(brief.protocol, NcclProtocol::kLl);
    EXPECT_EQ(nccl_time(constants, rack, NcclCall{one_way, 32, 1, 32, 32 * kKiB}).algorithm, NcclAlgorithm::kNvls);
  }
}

// Two nodes of eight, 64 KiB over 16 channels: 14 NVLink steps and 2 hops, each stores 4 KiB at 32 GB/s (0.128 us):
// 4 + 0.5 + 14 + 16 + 16 x 0.128; 65536 bytes at 0.05 x 400 GB/s.
TEST(NetworkTree, LlByHand) {
  const Bench bench(NcclCollective::kAllReduce, 2, 8, 64 * kKiB);
  const Parts parts = network_tree(bench.at(), NcclProtocol::kLl, 16);
  EXPECT_NEAR(parts.fixed_us, 34.5 + 16 * 0.128, 1e-9);
  EXPECT_NEAR(parts.bytes_us, 65536 / 20e3, 1e-9);
}

// Simple: chunks of 512 KiB, stored at 16 GB/s; with four domains an inner node sends twice, so half of 400 x 0.95.
TEST(NetworkTree, SimpleByHandAndFanOut) {
  const Bench two(NcclCollective::kAllReduce, 2, 8, 1024 * kMiB);
  const Parts parts = network_tree(two.at(), NcclProtocol::kSimple, 16);
  EXPECT_NEAR(parts.fixed_us, 4 + 10 + 14 * 3 + 2 * 5 + 16 * 524288 / 16e3, 1e-6);
  EXPECT_NEAR(parts.bytes_us, 1024 * kMiB / 200e3, 1e-6);  // half of the NVLink rate binds
  const Bench four(NcclCollective::kAllReduce, 4, 8, 1024 * kMiB);
  EXPECT_NEAR(network_tree(four.at(), NcclProtocol::kSimple, 16).bytes_us, 1024 * kMiB / 190e3, 1e-6);
}

// Two nodes: 128 KiB chunks from 64 MiB on, loops of 16 MiB, 64 of them; both sides: NIC 0.95 x 400 = 380 GB/s, NVLink
// 1.25 x 400 x 8 / 14 = 285.714.
TEST(NvlsTree, TwoNodesAreBoundByNvlink) {
  const Bench bench(NcclCollective::kAllReduce, 2, 8, 1024 * kMiB);
  const double one = 16 * kMiB / (1000 * 400 * 1.25 * 8 / 14);
  const Parts parts = nvls_tree(bench.at());
  EXPECT_NEAR(parts.bytes_us, 64 * one, 1e-6);
  EXPECT_NEAR(parts.fixed_us, 4 + 15 + 2 * 5 + 66 * 6 + 2 * one, 1e-6);
}

// Switches that reduce take the bytes once, however many domains there are.
TEST(CollNet, BytesDoNotGrowWithDomains) {
  const Bench two(NcclCollective::kAllReduce, 2, 8, 1024 * kMiB);
  const Bench eight(NcclCollective::kAllReduce, 8, 8, 1024 * kMiB);
  EXPECT_GT(nvls_tree(eight.at()).bytes_us, 1.2 * nvls_tree(two.at()).bytes_us);
  EXPECT_NEAR(collnet(eight.at()).bytes_us, collnet(two.at()).bytes_us, 1e-6);
}

// All-gather of 16 ranks on two nodes, Intel: 14 near steps of max(3, 3 x 1 post), one hop of 5: 4 + 10 + 42 + 5; 15 of
// 16 parts at 0.9 x 400 GB/s.
TEST(NetworkRing, SimpleByHand) {
  const Bench bench(NcclCollective::kAllGather, 2, 8, 1024 * kMiB);
  const Parts parts = network_ring(bench.at(), NcclProtocol::kSimple, 16);
  EXPECT_NEAR(parts.fixed_us, 61, 1e-9);
  EXPECT_NEAR(parts.bytes_us, 1024 * kMiB * 15 / 16 / 360e3, 1e-6);
}

// Eight GPUs, 32 KiB in all: 4 KiB a peer in LL on one channel: 4 + 2 + 6 x 0.2 and 4096 / 5e3.
TEST(AllToAll, ShortMessagesUseLl) {
  const Bench bench(NcclCollective::kAllToAll, 1, 8, 32 * kKiB);
  const NcclTime time = nccl_time(bench.constants, bench.machine, bench.call);
  EXPECT_EQ(time.algorithm, NcclAlgorithm::kDirect);
  EXPECT_EQ(time.protocol, NcclProtocol::kLl);
  EXPECT_NEAR(time.fixed_us, 7.2, 1e-9);
  EXPECT_NEAR(time.bytes_us, 4096 / 5e3, 1e-9);
}

// Two GPUs, 16 MiB: 8 MiB to the peer over 16 channels, parts of 512 KiB, one chunk: it is sent at 25 GB/s (400 / 16),
// then received at 25 GB/s.
TEST(AllToAll, OneChunkIsSentThenReceived) {
  const Bench bench(NcclCollective::kAllToAll, 1, 2, 16 * kMiB);
  const NcclTime time = nccl_time(bench.constants, bench.machine, bench.call);
  EXPECT_EQ(time.channels, 16);
  EXPECT_NEAR(time.total_us(), 4 + 6 + 2 * 524288 / 25e3, 1e-6);
}

// 64 MiB: four chunks a channel; three of them pass while both directions are busy. A channel does 0.8 x 25 = 20 GB/s
// then; the link 1 / (1 / 400 + 2 / 4000) = 333.3 GB/s for 16 channels, 20.83 each.
TEST(AllToAll, LaterChunksPassInBothDirections) {
  const Bench bench(NcclCollective::kAllToAll, 1, 2, 64 * kMiB);
  const NcclTime time = nccl_time(bench.constants, bench.machine, bench.call);
  EXPECT_NEAR(time.total_us(), 4 + 6 + 2 * 524288 / 25e3 + 3 * 524288 / 20e3, 1e-6);
}

// Eight GPUs share the link: 28 channels, 333.3 / 28 = 11.905 GB/s each.
TEST(AllToAll, ManyPeersShareTheLink) {
  const Bench bench(NcclCollective::kAllToAll, 1, 8, 64 * kMiB);
  const NcclTime time = nccl_time(bench.constants, bench.machine, bench.call);
  const double part = 2 * kMiB;
  EXPECT_NEAR(time.total_us(),
              4 + 6 + 6 * 0.2 + 524288 / 25e3 + 524288 * 28 / 400e3 + (part - 524288) * 28 * (1 / 400e3 + 2 / 4000e3),
              1e-6);
}

// Far parts: (n - L) / n of the buffer at 0.75 of the NIC; NVLink's part is shorter.
TEST(AllToAll, OverNodesTheNicRules) {
  const Bench bench(NcclCollective::kAllToAll, 4, 8, 8192 * kMiB);
  const NcclTime time = nccl_time(bench.constants, bench.machine, bench.call);
  EXPECT_NEAR(time.bytes_us, 8192 * kMiB * 24 / 32 / 37.5e3, 1e-3);
}

TEST(Exchange, NearOnlyAndFarOnly) {
  const NcclConstants constants = round_constants();
  NcclExchange far;
  far.ranks = 16;
  far.domains = 2;
  far.far_peers = 1;
  far.far_message = far.far_bytes = 64 * kMiB;
  const NcclTime time = nccl_time(constants, round_machine(), far);
  // A ring's start (10) and hop (5) over the network; one peer: the ring's 0.9 of 50 GB/s.
  EXPECT_NEAR(time.total_us(), 4 + 10 + 5 + 64 * kMiB / 45e3, 1e-6);
  NcclExchange brief = far;  // LL: 2 of a send and a hop of 8
  brief.far_message = brief.far_bytes = kKiB;
  EXPECT_NEAR(nccl_time(constants, round_machine(), brief).fixed_us, 4 + 2 + 8, 1e-9);
  NcclExchange near = far;
  near.domains = 1;
  near.far_peers = 0;
  near.far_message = near.far_bytes = 0;
  near.near_peers = 1;
  near.near_message = near.near_bytes = 64 * kMiB;
  EXPECT_LT(nccl_time(constants, round_machine(), near).total_us(), time.total_us());
}

// One peer gets 64 MiB, six get nothing: the link is its alone, so only the channels bind: 4 of them, 16 MiB each.
TEST(Exchange, AHotMessageHasTheLinkToItself) {
  NcclExchange hot;
  hot.ranks = 8;
  hot.near_peers = 7;
  hot.near_message = hot.near_bytes = 64 * kMiB;
  const NcclTime time = nccl_time(round_constants(), round_machine(), hot);
  EXPECT_EQ(time.channels, 4);
  EXPECT_NEAR(time.total_us(), 4 + 6 + 6 * 0.2 + 2 * 524288 / 25e3 + (16 * kMiB - 524288) / 20e3, 1e-6);
}

// LL of 512 KiB to 30 peers (before 2.29): flags double the bytes, so 30 x 512 KiB take 2 / 400 GB/s.
TEST(Exchange, ManyPeersInLlShareTheLink) {
  NcclMachine machine = round_machine();
  machine.version = 22703;
  machine.gpus_per_domain = 72;
  const NcclCall call{NcclCollective::kAllToAll, 31, 1, 31, 31 * 512 * kKiB};
  NcclConstants constants = round_constants();
  set(constants, GpuTerm::kP2pLlRate, 50);
  const NcclTime time = nccl_time(constants, machine, call);
  EXPECT_EQ(time.protocol, NcclProtocol::kLl);
  EXPECT_NEAR(time.bytes_us, 2 * 30 * 512 * kKiB / 400e3, 1e-9);
}

TEST(NcclTime, OneRankCostsAStart) {
  const NcclCall call{NcclCollective::kAllReduce, 1, 1, 1, kMiB};
  EXPECT_EQ(nccl_time(round_constants(), round_machine(), call).total_us(), 4);
}

// TCPX runs Ring and Simple only; TCPXO reduces in trees, without LL128.
TEST(NcclTime, NetworksKeepToWhatTheirMakersSet) {
  Bench bench(NcclCollective::kAllReduce, 2, 8, 4 * kKiB);
  bench.machine.network = NcclNetwork::kTcpx;
  NcclTime time = nccl_time(bench.constants, bench.machine, bench.call);
  EXPECT_EQ(time.algorithm, NcclAlgorithm::kRing);
  EXPECT_EQ(time.protocol, NcclProtocol::kSimple);
  bench.machine.network = NcclNetwork::kTcpxo;
  for (double bytes = kKiB; bytes < 1e10; bytes *= 4) {
    bench.call.bytes = bytes;
    time = nccl_time(bench.constants, bench.machine, bench.call);
    EXPECT_EQ(time.algorithm, NcclAlgorithm::kTree) << bytes;
    EXPECT_NE(time.protocol, NcclProtocol::kLl128) << bytes;
  }
}

// A vendor's tuner takes what is really fastest, so no allowed pair is faster.
TEST(NcclTime, ATunedNetworkTakesTheFastest) {
  Bench bench(NcclCollective::kAllReduce, 2, 8, 8 * kMiB);
  bench.machine.network = NcclNetwork::kEfa2;
  const double best = nccl_time(bench.constants, bench.machine, bench.call).total_us();
  for (const NcclProtocol protocol : {NcclProtocol::kLl, NcclProtocol::kLl128, NcclProtocol::kSimple}) {
    const int channels = nccl_channels(bench.machine, bench.graph, bench.call, NcclAlgorithm::kTree, protocol);
    const Parts parts = network_tree(bench.at(), protocol, channels);
    EXPECT_LE(best, parts.fixed_us + parts.bytes_us + 1e-9);
  }
}

TEST(NcclTime, APyTorchBenchmarkAddsItsStart) {
  NcclConstants constants = round_constants();
  constants.pytorch_us = 20;
  HarnessCall call{Harness::kPyTorch, 8, kNcclVersion, 24, 100};
  EXPECT_EQ(harness_us(constants, call), 20);
  call.harness = Harness::kNcclTests;
  EXPECT_EQ(harness_us(constants, call), 0);
}

// Eight launches of 5 us: 40 us however short the call is, and nothing once the GPUs take longer. Before NCCL 2.22 each
// of 24 channels adds 0.25 us to a launch: 8 (5 + 6) = 88 us.
TEST(NcclTime, OneThreadLaunchesItsGpusOneAfterAnother) {
  NcclConstants constants = round_constants();
  constants.pytorch_us = 20;
  constants.launch_us = 5;
  constants.launch_channel_us = 0.25;
  const auto added = [&](int gpus, int version, double us) {
    return harness_us(constants, {Harness::kNcclTestsOneThread, gpus, version, 24, us});
  };
  EXPECT_EQ(added(8, 22200, 30), 10);
  EXPECT_EQ(added(8, 22200, 40), 0);
  EXPECT_EQ(added(8, 22200, 1000), 0);
  EXPECT_EQ(added(4, 22200, 12), 8);
  EXPECT_EQ(added(8, 22105, 30), 58);
  EXPECT_EQ(added(8, 22105, 100), 0);
  EXPECT_EQ(harness_us(constants, {Harness::kNcclTests, 8, 22105, 24, 1}), 0);
}

}  // namespace
}  // namespace longhaul
