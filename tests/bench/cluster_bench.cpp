// Building clusters and asking them for routes: 100,000 GPUs in seconds and tens of megabytes.
#include <benchmark/benchmark.h>

#include "sim/cluster/bisection.h"

namespace longhaul {
namespace {

Topology shape(int kind) {
  Topology topology = *read_topology(kind == 2 ? "gb200-nvl72" : "dgx-h200-ndr", LONGHAUL_SOURCE_ROOT);
  if (kind == 1) {
    topology.routing = Routing::kHash;
    topology.leaves_per_pod = 8;
    topology.spine_oversubscription = 2;
  }
  return topology;
}

const char* kNames[] = {"rails, spread", "three levels, hash", "NVL72"};

std::int64_t bytes_of(const Cluster& cluster) {
  std::int64_t bytes = static_cast<std::int64_t>(cluster.links().size_bytes());
  for (const Link& link : cluster.links())
    bytes += link.name.capacity() > 15 ? static_cast<std::int64_t>(link.name.capacity()) : 0;
  return bytes;
}

void build(benchmark::State& state) {
  const Topology topology = shape(static_cast<int>(state.range(1)));
  const int gpus = static_cast<int>(state.range(0)) / topology.domain_gpus() * topology.domain_gpus();
  for (auto _ : state) benchmark::DoNotOptimize(Cluster(topology, gpus).links().data());
  const Cluster cluster(topology, gpus);
  state.counters["links"] = static_cast<double>(cluster.links().size());
  state.counters["MB"] = static_cast<double>(bytes_of(cluster)) / 1e6;
  state.SetLabel(kNames[state.range(1)]);
}
BENCHMARK(build)->ArgsProduct({{1024, 100'000}, {0, 1, 2}})->Unit(benchmark::kMillisecond);

void route(benchmark::State& state) {
  const Topology topology = shape(static_cast<int>(state.range(0)));
  const Cluster cluster(topology, 100'000 / topology.domain_gpus() * topology.domain_gpus());
  int from = 0;
  int to = 1;
  for (auto _ : state) {
    benchmark::DoNotOptimize(cluster.route(from, to));
    from = (from + 7919) % cluster.gpus();
    to = (to + 104'729) % cluster.gpus();
  }
  state.SetLabel(kNames[state.range(0)]);
}
BENCHMARK(route)->DenseRange(0, 2);

// One NIC down everywhere, and another in one node: every route is a touched one.
void touched_route(benchmark::State& state) {
  Topology topology = shape(0);
  WhatIf rail;
  rail.rail = 2;
  rail.down = true;
  WhatIf nic;
  nic.links = "n5.nic1";
  nic.down = true;
  topology.what_ifs = {rail, nic};
  const Cluster cluster(topology, 1024);
  int pair = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(cluster.route(pair / 1024, pair % 1024));
    pair = (pair + 7919) % (1024 * 1024);
  }
}
BENCHMARK(touched_route);

void cluster_bisection(benchmark::State& state) {
  const Cluster cluster(shape(static_cast<int>(state.range(0))), 99'936);
  for (auto _ : state) benchmark::DoNotOptimize(bisection(cluster, 0, cluster.gpus(), true));
  state.SetLabel(kNames[state.range(0)]);
}
BENCHMARK(cluster_bisection)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
