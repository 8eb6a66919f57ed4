// SimGrid's flow model (CM02, no TCP window, no cross traffic) against FlowSolver: equal finish times on random
// platforms. Needs libsimgrid-dev; a program of its own, because SimGrid has one engine a process.
//
// SimGrid shares a link in inverse proportion to the latencies of the routes. Equal latencies are equal weights; in
// some of the platforms a flow of weight w has a route of 1/w of the latency. The limit of a flow is the rate of a link
// of its own there (Comm::set_rate has no effect at gamma 0) and a longer byte phase here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

#include "sim/core/rng.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

namespace sg4 = simgrid::s4u;

constexpr int kEqualLatencies = 200;  // platforms; every other one with limits of single flows
constexpr int kWeighted = 40;         // platforms with weights, and limits
constexpr int kPlatforms = kEqualLatencies + kWeighted;
constexpr int kMostFlows = 200;
constexpr double kLatencySeconds = 1e-4;  // of a route, at weight 1
constexpr double kShortestChecked = 1e-3;
constexpr double kTolerance = 1e-6;

// One random case: three link rates, a few links of each, flows over random sets of them.
struct Case {
  Cluster cluster;
  std::vector<std::vector<LinkId>> paths;
  std::vector<std::int64_t> bytes;
  std::vector<Time> starts;
  std::vector<double> weights;
  std::vector<double> limits;  // bytes per second; 0: none
};

Case random_case(int number) {
  Rng random(7, "simgrid/" + std::to_string(number));
  Topology topology = *read_topology("a100-40gb-2x4", LONGHAUL_SOURCE_ROOT);
  topology.nodes.reset();
  for (LinkClass* kind : {&topology.nvlink, &topology.nic, &*topology.pcie}) {
    kind->rated = {static_cast<double>(random.integer(100, 10'000)) * 1e6};
    kind->efficiency = 1;
  }
  Case result{*make_cluster(topology, 8), {}, {}, {}, {}, {}};
  const auto links = static_cast<std::int64_t>(result.cluster.links().size());
  const std::int64_t used = random.integer(3, links);
  const std::int64_t flows = random.integer(1, kMostFlows);
  for (std::int64_t flow = 0; flow < flows; ++flow) {
    std::vector<LinkId> path;
    const std::int64_t hops = random.integer(1, 6);
    while (static_cast<std::int64_t>(path.size()) < std::min(hops, used)) {
      // Spread over all classes: NVLinks come first in the numbering.
      const auto link =
          static_cast<LinkId>(random.integer(0, used - 1) * (links - 1) / std::max<std::int64_t>(1, used - 1));
      if (std::find(path.begin(), path.end(), link) == path.end()) path.push_back(link);
    }
    result.paths.push_back(path);
    result.bytes.push_back(random.integer(1'000'000, 2'000'000'000));
    result.starts.push_back(Time::from_ps(random.integer(0, 1'000) * 1'000'000'000));
    const bool limited = number % 2 == 1 && random.integer(0, 2) == 0;
    result.limits.push_back(limited ? static_cast<double>(random.integer(1, 1'000)) * 1e6 : 0);
    result.weights.push_back(number < kEqualLatencies ? 1 : static_cast<double>(1 << random.integer(0, 3)));
  }
  return result;
}

std::vector<Time> solve(const Case& problem) {
  std::vector<Transfer> transfers;
  for (std::size_t flow = 0; flow < problem.paths.size(); ++flow) {
    const double weight = problem.weights[flow];
    const double limit = problem.limits[flow];
    Transfer transfer = path_transfer(problem.cluster, problem.paths[flow], problem.bytes[flow],
                                      Time::from_seconds(kLatencySeconds / weight));
    transfer.weight = weight;
    if (limit > 0) {
      transfer.byte_seconds = std::max(transfer.byte_seconds, static_cast<double>(problem.bytes[flow]) / limit);
      transfer.alone = transfer.latency + Time::from_seconds(transfer.byte_seconds);
    }
    transfers.push_back(transfer);
  }
  std::vector<Start> starts;
  for (std::size_t flow = 0; flow < transfers.size(); ++flow) {
    starts.push_back({problem.starts[flow], &transfers[flow]});
  }
  FlowSolver solver(problem.cluster);
  return run_flows(solver, starts);
}

// All cases live side by side in SimGrid's one engine: they share no link. Finish times in seconds.
void add_to_simgrid(const Case& problem, int number, sg4::NetZone* zone, std::vector<double>& finish) {
  const std::string prefix = "c" + std::to_string(number) + ".";
  std::vector<sg4::Link*> links;
  for (const Link& link : problem.cluster.links()) {
    links.push_back(zone->create_link(prefix + link.name, link.bandwidth.value)->set_latency(0)->seal());
  }
  finish.assign(problem.paths.size(), -1);
  for (std::size_t flow = 0; flow < problem.paths.size(); ++flow) {
    const std::string name = prefix + "f" + std::to_string(flow);
    sg4::Host* from = zone->create_host(name + ".from", 1e9)->seal();
    sg4::Host* to = zone->create_host(name + ".to", 1e9)->seal();
    const double latency = kLatencySeconds / problem.weights[flow];
    const double limit = problem.limits[flow] > 0 ? problem.limits[flow] : 1e15;
    sg4::Link* access = zone->create_link(name + ".access", limit)->set_latency(latency)->seal();
    std::vector<sg4::LinkInRoute> route = {sg4::LinkInRoute(access)};
    for (const LinkId link : problem.paths[flow]) route.emplace_back(links[static_cast<std::size_t>(link)]);
    zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, route, false);
    const double start = problem.starts[flow].seconds();
    const auto bytes = static_cast<std::uint64_t>(problem.bytes[flow]);
    sg4::Actor::create(name, from, [=, &finish] {
      sg4::this_actor::sleep_for(start);
      sg4::Comm::sendto_async(from, to, bytes)->wait();
      finish[flow] = sg4::Engine::get_clock();
    });
  }
}

TEST(SimGrid, FinishesAtTheSameTimes) {
  int argc = 1;
  char name[] = "simgrid";
  char* argv[] = {name, nullptr};
  sg4::Engine engine(&argc, argv);
  sg4::Engine::set_config("contexts/stack-size:128");  // KiB an actor; 8 MiB by default, and there are 24,000
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("surf/precision:1e-12");
  sg4::Engine::set_config("maxmin/precision:1e-9");
  sg4::NetZone* world = sg4::create_full_zone("world");
  std::vector<Case> cases;
  for (int number = 0; number < kPlatforms; ++number) cases.push_back(random_case(number));
  std::vector<std::vector<double>> finish(kPlatforms);
  for (int number = 0; number < kPlatforms; ++number) {
    // A zone a case: the route table of a zone grows with the square of its hosts.
    const auto index = static_cast<std::size_t>(number);
    sg4::NetZone* zone = sg4::create_full_zone("case" + std::to_string(number))->set_parent(world);
    add_to_simgrid(cases[index], number, zone, finish[index]);
    zone->seal();
  }
  world->seal();
  engine.run();
  int checked = 0;
  double worst = 0;
  for (std::size_t number = 0; number < cases.size(); ++number) {
    const std::vector<Time> ours = solve(cases[number]);
    for (std::size_t flow = 0; flow < ours.size(); ++flow) {
      const double start = cases[number].starts[flow].seconds();
      const double theirs = finish[number][flow] - start;
      if (theirs < kShortestChecked) continue;
      ++checked;
      worst = std::max(worst, std::abs(ours[flow].seconds() - start - theirs) / theirs);
      EXPECT_NEAR(ours[flow].seconds() - start, theirs, kTolerance * theirs) << "case " << number << ", flow " << flow;
    }
  }
  EXPECT_GT(checked, 20'000);
  RecordProperty("checked", checked);
  std::printf("%d flows on %d platforms; largest relative difference %.1e\n", checked, kPlatforms, worst);
}

}  // namespace
}  // namespace longhaul
