// What changed links do to a collective: slower, narrower, further away.
#include <gtest/gtest.h>

#include "sim/core/json.h"
#include "sim/network/collectives.h"
#include "sim/network/shipped_nccl.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

// Keys of a topology file, as a user changes them.
Cluster cluster_with(const std::string& patch, int gpus) {
  const auto json = parse_json(R"({"base": "dgx-h200-ndr", )" + patch + "}", "t.json");
  return *make_cluster(*parse_topology(*json, "t.json", "", LONGHAUL_SOURCE_ROOT), gpus);
}

// By how much longer, in us, an operation takes on `changed` than on the shipped file.
template <class Operation>
double longer_us(const Cluster& changed, Operation operation) {
  const Cluster shipped = shipped_cluster("dgx-h200-ndr", changed.gpus());
  Collectives before(shipped);
  Collectives after(changed);
  const Transfer slow = operation(after);
  const Transfer fast = operation(before);
  EXPECT_EQ(slow.protocol, fast.protocol);
  EXPECT_EQ(slow.algorithm, fast.algorithm);
  EXPECT_EQ(slow.byte_seconds, fast.byte_seconds);
  return slow.latency.us() - fast.latency.us();
}

// 1000 us more on the wire: a gather over D nodes crosses D-1 boundaries one after another, a message one.
TEST(WhatIfTimes, NetworkLatencyCountsOnEveryHopBetweenNodes) {
  const Cluster slow = cluster_with(R"("network": {"latency_us": 1002.7})", 32);
  const auto gather = [](Collectives& c) { return c.all_gather(rank_range(32), Bytes{100'000'000}); };
  const auto small = [](Collectives& c) { return c.all_gather(rank_range(32), Bytes{64}); };
  const auto inside = [](Collectives& c) { return c.all_gather(rank_range(8), Bytes{100'000'000}); };
  EXPECT_NEAR(longer_us(slow, gather), 3 * 1000, 1e-5);
  EXPECT_NEAR(longer_us(slow, small), 3 * 1000, 1e-5);
  EXPECT_EQ(longer_us(slow, inside), 0);
  for (const std::int64_t bytes : {1'000, 1'000'000}) {
    const auto edge = [&](Collectives& c) {
      return c.exchange(std::vector<PeerMessage>{{0, 1, Bytes{bytes}}, {3, 11, Bytes{bytes}}, {1, 14, Bytes{bytes}}});
    };
    const auto near = [&](Collectives& c) { return c.exchange(std::vector<PeerMessage>{{0, 1, Bytes{bytes}}}); };
    EXPECT_NEAR(longer_us(slow, edge), 1000, 1e-5);
    EXPECT_EQ(longer_us(slow, near), 0);
  }
}

// One member a node: PAT over four ranks goes two steps (distances 1 and 2) where a ring goes three.
TEST(WhatIfTimes, NetworkLatencyCountsOnEveryStepOfPat) {
  const Cluster slow = cluster_with(R"("network": {"latency_us": 1002.7})", 32);
  const auto gather = [](Collectives& c) { return c.all_gather(rank_range(4, 3, 8), Bytes{64}); };
  const Cluster shipped = shipped_cluster("dgx-h200-ndr", 32);
  Collectives collectives(shipped);
  const int steps = gather(collectives).algorithm == NcclAlgorithm::kPat ? 2 : 3;
  EXPECT_NEAR(longer_us(slow, gather), steps * 1000, 1e-5);
}

// Trees over 16 nodes are four levels deep: up and down, by LL alone or between NVLS.
TEST(WhatIfTimes, NetworkLatencyCountsOnEveryLevelOfATree) {
  const Cluster slow = cluster_with(R"("network": {"latency_us": 1002.7})", 128);
  for (const std::int64_t bytes : {std::int64_t{64}, std::int64_t{1} << 28}) {
    const auto reduce = [&](Collectives& c) { return c.all_reduce(rank_range(128), Bytes{bytes}); };
    Collectives collectives(slow);
    const NcclAlgorithm algorithm = reduce(collectives).algorithm;
    ASSERT_TRUE(algorithm == NcclAlgorithm::kTree || algorithm == NcclAlgorithm::kNvlsTree) << nccl_name(algorithm);
    EXPECT_NEAR(longer_us(slow, reduce), 8 * 1000, 1e-5);
  }
}

// 10 us more over NVLink: on every ring step inside a node, on both trips of NVLS, and once on a message, also on the
// way to another rail.
TEST(WhatIfTimes, NvLinkLatencyCountsOnEveryStepInsideANode) {
  const Cluster slow = cluster_with(R"("nvlink": {"latency_us": 10.6})", 16);
  for (const std::int64_t bytes : {64, 200'000, 1'000'000'000}) {
    const auto edge = [&](int from, int to) {
      return longer_us(slow, [&](Collectives& c) {
        return c.exchange(std::vector<PeerMessage>{{from, to, Bytes{bytes}}});
      });
    };
    EXPECT_NEAR(edge(0, 1), 10, 1e-5) << bytes;
    EXPECT_NEAR(edge(3, 11), 0, 1e-5) << bytes;
    EXPECT_NEAR(edge(3, 12), 10, 1e-5) << bytes;
    const auto gather = [&](Collectives& c) { return c.all_gather(rank_range(8), Bytes{bytes}); };
    const auto nodes = [&](Collectives& c) { return c.all_gather(rank_range(16), Bytes{bytes}); };
    EXPECT_NEAR(longer_us(slow, gather), 7 * 10, 1e-5) << bytes;
    EXPECT_NEAR(longer_us(slow, nodes), 14 * 10, 1e-5) << bytes;
  }
  const auto ring = [](Collectives& c) { return c.all_reduce(rank_range(8), Bytes{64}); };
  const auto nvls = [](Collectives& c) { return c.all_reduce(rank_range(8), Bytes{1 << 30}); };
  EXPECT_NEAR(longer_us(slow, ring), 14 * 10, 1e-5);
  EXPECT_NEAR(longer_us(slow, nvls), 2 * 10, 1e-5);
}

// A message passes PCIe at both ends: 2 x 10 us.
TEST(WhatIfTimes, PcieLatencyCountsAtBothEnds) {
  Topology topology = *read_topology("a100-40gb-2x4", LONGHAUL_SOURCE_ROOT);
  const PeerMessage message{1, 5, Bytes{1'000'000}};
  const auto latency_us = [&] {
    const Cluster cluster = *make_cluster(topology, 8);
    return Collectives(cluster).exchange({&message, 1}).latency.us();
  };
  const double before = latency_us();
  topology.pcie->latency = Time::from_us(10);
  EXPECT_NEAR(latency_us(), before + 20, 1e-6);
}

// Shipped files keep the wires that the constants were fitted on.
TEST(WhatIfTimes, ShippedTopologiesKeepTheFittedWires) {
  const std::vector<std::string> names = shipped_topologies(LONGHAUL_SOURCE_ROOT);
  ASSERT_GE(names.size(), 5u);
  for (const std::string& name : names) {
    const Topology topology = *read_topology(name, LONGHAUL_SOURCE_ROOT);
    const Cluster cluster = *make_cluster(topology, 2 * topology.domain_gpus());
    const WireLatency wires(cluster);
    EXPECT_EQ(wires.message(0, 1), 0) << name;
    EXPECT_EQ(wires.message(0, topology.domain_gpus()), 0) << name;
    EXPECT_EQ(wires.message(0, topology.domain_gpus() + 1), 0) << name;
  }
}

// NICs at a tenth of their rate: what they carry takes ten times as long; what stays inside does not.
TEST(WhatIfTimes, SlowNicsHoldUpWhatCrossesThem) {
  const Cluster shipped = shipped_cluster("dgx-h200-ndr", 16);
  const Cluster slow = cluster_with(R"("scale_network": 0.1)", 16);
  Collectives before(shipped);
  Collectives after(slow);
  const Bytes part{100'000'000};
  const Transfer gather = after.all_gather(rank_range(16), part);
  // 15 parts over each boundary, an eighth on each NIC.
  EXPECT_GE(gather.byte_seconds, 15e8 / 8 / (slow.topology().nic.effective().value) * (1 - 1e-12));
  EXPECT_GT(gather.byte_seconds, 5 * before.all_gather(rank_range(16), part).byte_seconds);
  EXPECT_EQ(after.all_gather(rank_range(8), part).alone, before.all_gather(rank_range(8), part).alone);
}

// NVLink at a tenth: NVLS moves (1 + 1/8) S over it.
TEST(WhatIfTimes, SlowNvLinkHoldsUpNvls) {
  const Cluster slow = cluster_with(R"("scale_nvlink": 0.1)", 8);
  Collectives collectives(slow);
  const Transfer reduce = collectives.all_reduce(rank_range(8), Bytes{8'000'000'000});
  EXPECT_GE(reduce.byte_seconds, 9e9 / slow.topology().nvlink.effective().value * (1 - 1e-12));
}

}  // namespace
}  // namespace longhaul
