// Collectives on damaged and blocking fabrics: what slows them is the same wherever it is written down, and less of a
// fabric is never faster.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "sim/network/collectives.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kGpus = 32;  // four nodes of eight

Cluster changed_cluster(Json patch) {
  patch["base"] = "dgx-h200-ndr";
  const auto topology = parse_topology(patch, "test", "", LONGHAUL_SOURCE_ROOT);
  RC_ASSERT(topology.has_value());
  auto cluster = make_cluster(*topology, kGpus);
  RC_ASSERT(cluster.has_value());
  return std::move(*cluster);
}

using Run = std::function<Transfer(Collectives&, const std::vector<int>&, Bytes)>;

// Every kind; sizes as each member gives or takes them.
const std::vector<Run>& kinds() {
  static const std::vector<Run> all = {
      [](Collectives& c, const std::vector<int>& ranks, Bytes bytes) { return c.all_reduce(ranks, bytes); },
      [](Collectives& c, const std::vector<int>& ranks, Bytes bytes) { return c.all_gather(ranks, bytes); },
      [](Collectives& c, const std::vector<int>& ranks, Bytes bytes) { return c.reduce_scatter(ranks, bytes); },
      [](Collectives& c, const std::vector<int>& ranks, Bytes bytes) { return c.broadcast(ranks, bytes); },
      [](Collectives& c, const std::vector<int>& ranks, Bytes bytes) { return c.all_to_all(ranks, bytes); },
      [](Collectives& c, const std::vector<int>& ranks, Bytes bytes) { return c.send_receive(ranks, bytes); },
  };
  return all;
}

// Whole nodes, or one GPU of each node.
std::vector<int> draw_group() {
  std::vector<int> ranks;
  const int nodes = *rc::gen::inRange(2, 5);
  const int local = *rc::gen::element(1, 8);
  for (int node = 0; node < nodes; ++node) {
    for (int gpu = 0; gpu < local; ++gpu) ranks.push_back(node * 8 + gpu);
  }
  return ranks;
}

Bytes draw_bytes() { return {std::int64_t{1} << *rc::gen::inRange(0, 27)}; }

RC_GTEST_PROP(Damage, OversubscriptionIsTheSameByKeyAndByWhatIf, ()) {
  const double factor = *rc::gen::element(2.0, 4.0);
  const Cluster by_key = changed_cluster({{"network", {{"nodes_per_leaf", 1}, {"oversubscription", factor}}}});
  const Cluster by_what_if =
      changed_cluster({{"network", {{"nodes_per_leaf", 1}}},
                       {"what_if", Json::array({{{"links", "leaf*"}, {"scale_bandwidth", 1 / factor}}})}});
  Collectives first(by_key);
  Collectives second(by_what_if);
  const std::vector<int> ranks = draw_group();
  const Bytes bytes = draw_bytes();
  for (const Run& run : kinds()) {
    const Transfer a = run(first, ranks, bytes);
    const Transfer b = run(second, ranks, bytes);
    RC_ASSERT(a.alone == b.alone);
    RC_ASSERT(a.latency == b.latency);
  }
}

// Two NICs' traffic on one: as long as with that NIC at half its rate at least, and the fixed part stays.
RC_GTEST_PROP(Damage, ANicDownIsNeverFaster, ()) {
  const int nic = *rc::gen::inRange(0, 8);
  const std::string name = "n1.nic" + std::to_string(nic);
  const Cluster whole = changed_cluster(Json::object());
  const Cluster damaged = changed_cluster({{"what_if", Json::array({{{"links", name + "*"}, {"down", true}}})}});
  Collectives first(whole);
  Collectives second(damaged);
  const std::vector<int> ranks = draw_group();
  const Bytes bytes = draw_bytes();
  for (const Run& run : kinds()) {
    const Transfer a = run(first, ranks, bytes);
    const Transfer b = run(second, ranks, bytes);
    RC_ASSERT(b.alone >= a.alone);
    RC_ASSERT(b.latency >= a.latency);
    std::int64_t most = 0;  // the traffic of the NIC that is gone goes over another
    for (const LinkLoad& load : b.loads) {
      RC_ASSERT(!damaged.links()[static_cast<std::size_t>(load.link)].down);
      most = std::max(most, load.bytes);
    }
    RC_ASSERT(b.loads.empty() || most > 0);
  }
}

TEST(Damage, ANicDownDoublesARingThatNicsBound) {
  // All-gather of 16 GPUs on two nodes, 1 GiB each: 15 GiB cross each node boundary over eight NICs. With one NIC of
  // node 1 down, a neighbour carries two shares: twice the bytes on the busiest NIC, so twice the byte phase of a
  // NIC-bound ring. NVLink: a hop more for the rerouted share, far from its limit.
  const auto topology = [](Json patch) {
    patch["base"] = "dgx-h200-ndr";
    return *make_cluster(*parse_topology(patch, "test", "", LONGHAUL_SOURCE_ROOT), 16);
  };
  const Cluster whole = topology(Json::object());
  const Cluster damaged = topology({{"what_if", Json::array({{{"links", "n1.nic3*"}, {"down", true}}})}});
  std::vector<int> ranks(16);
  std::iota(ranks.begin(), ranks.end(), 0);
  const Transfer a = Collectives(whole).all_gather(ranks, {std::int64_t{1} << 30});
  const Transfer b = Collectives(damaged).all_gather(ranks, {std::int64_t{1} << 30});
  EXPECT_GT(b.alone.seconds(), 1.5 * a.alone.seconds());
  EXPECT_LT(b.alone.seconds(), 2.1 * a.alone.seconds());
  EXPECT_GE(b.latency, a.latency);
}

}  // namespace
}  // namespace longhaul
