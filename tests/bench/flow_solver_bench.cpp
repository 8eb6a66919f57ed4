// Speed of the flow solver, the collectives and the cluster. One flow is two events: its start and its finish.
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/collectives.h"
#include "sim/network/flow_solver.h"

namespace longhaul {
namespace {

Topology topology() { return *read_topology("dgx-h200-ndr", LONGHAUL_SOURCE_ROOT); }

std::vector<int> all_ranks(const Cluster& cluster) {
  std::vector<int> ranks(static_cast<std::size_t>(cluster.gpus()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void BM_BuildCluster(benchmark::State& state) {
  const Topology shape = topology();
  for (auto _ : state) benchmark::DoNotOptimize(Cluster(shape, static_cast<int>(state.range(0))).links().data());
}
BENCHMARK(BM_BuildCluster)->Arg(1024)->Arg(16384)->Unit(benchmark::kMillisecond);

// Pipeline edges between neighbours, each pair on its own links: 128 at a time on 1,024 GPUs.
void BM_IsolatedFlows(benchmark::State& state) {
  const Cluster cluster(topology(), 1024);
  Collectives collectives(cluster);
  std::vector<Transfer> edges;
  for (int node = 0; node < 128; ++node) {
    const PeerMessage message{node * 8, node * 8 + 1, Bytes{10'000'000 + node}};
    edges.push_back(collectives.exchange({&message, 1}));
  }
  FlowSolver solver(cluster);
  std::vector<std::uint32_t> finished;
  Time now;
  for (std::uint32_t edge = 0; edge < edges.size(); ++edge) solver.start(now, edges[edge], edge);
  std::int64_t events = static_cast<std::int64_t>(edges.size());
  for (auto _ : state) {
    finished.clear();
    now = solver.next();
    solver.advance(now, finished);
    events += 2 * static_cast<std::int64_t>(finished.size());
    for (const std::uint32_t edge : finished) solver.start(now, edges[edge], edge);
  }
  state.counters["events"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_IsolatedFlows);

// A ZeRO all-gather over all ranks, started and finished alone.
void BM_ZeroAllGather(benchmark::State& state) {
  const Cluster cluster(topology(), static_cast<int>(state.range(0)));
  Collectives collectives(cluster);
  const Transfer gather = collectives.all_gather(all_ranks(cluster), Bytes{425'984});
  FlowSolver solver(cluster);
  std::vector<std::uint32_t> finished;
  Time now;
  for (auto _ : state) {
    finished.clear();
    solver.start(now, gather, 0);
    while (finished.empty()) solver.advance(now = solver.next(), finished);
  }
  state.counters["links"] = static_cast<double>(gather.loads.size());
}
BENCHMARK(BM_ZeroAllGather)->Arg(1024)->Unit(benchmark::kMicrosecond);

// The same gather in flight while node-local exchanges come and go beside it: every event solves it again.
void BM_GatherBesideExchanges(benchmark::State& state) {
  const Cluster cluster(topology(), 1024);
  Collectives collectives(cluster);
  const Transfer gather = collectives.all_gather(all_ranks(cluster), Bytes{1'000'000'000});
  std::vector<PeerMessage> messages;
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) messages.push_back({from, to, Bytes{1'000'000}});
  }
  const Transfer exchange = collectives.exchange(messages);
  FlowSolver solver(cluster);
  std::vector<std::uint32_t> finished;
  Time now;
  solver.start(now, gather, 0);
  solver.advance(now = solver.next(), finished);
  for (auto _ : state) {
    finished.clear();
    solver.start(now, exchange, 1);
    while (finished.empty()) solver.advance(now = solver.next(), finished);
    if (finished[0] == 0) state.SkipWithError("the gather ended");
  }
}
BENCHMARK(BM_GatherBesideExchanges)->Unit(benchmark::kMicrosecond)->Iterations(2000);

// Sixteen runs of one transfer in flight at once on the same links.
void BM_SameLinks(benchmark::State& state) {
  const Cluster cluster(topology(), 1024);
  Collectives collectives(cluster);
  const Transfer gather = collectives.all_gather(all_ranks(cluster), Bytes{1'000'000});
  FlowSolver solver(cluster);
  std::vector<std::uint32_t> finished;
  Time now;
  for (std::uint32_t run = 0; run < 16; ++run) solver.start(now, gather, run);
  for (auto _ : state) {
    finished.clear();
    solver.advance(now = solver.next(), finished);
    for (const std::uint32_t run : finished) solver.start(now, gather, run);
  }
}
BENCHMARK(BM_SameLinks)->Unit(benchmark::kMicrosecond);

// Random pairs all over 1,024 GPUs: one large component.
void BM_RandomPairs(benchmark::State& state) {
  const Cluster cluster(topology(), 1024);
  Collectives collectives(cluster);
  std::vector<Transfer> pairs;
  std::uint64_t seed = 1;
  const auto random = [&](std::uint64_t below) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int>((seed >> 33) % below);
  };
  for (int i = 0; i < state.range(0); ++i) {
    const PeerMessage message{random(1024), random(1023), Bytes{1'000'000 + random(10'000'000)}};
    if (message.from != message.to) pairs.push_back(collectives.exchange({&message, 1}));
  }
  FlowSolver solver(cluster);
  std::vector<std::uint32_t> finished;
  Time now;
  for (std::uint32_t pair = 0; pair < pairs.size(); ++pair) solver.start(now, pairs[pair], pair);
  for (auto _ : state) {
    finished.clear();
    solver.advance(now = solver.next(), finished);
    for (const std::uint32_t pair : finished) solver.start(now, pairs[pair], pair);
  }
}
BENCHMARK(BM_RandomPairs)->Arg(100)->Arg(1000)->Unit(benchmark::kMicrosecond);

void BM_BuildAllGather(benchmark::State& state) {
  const Cluster cluster(topology(), 1024);
  Collectives collectives(cluster);
  const std::vector<int> ranks = all_ranks(cluster);
  for (auto _ : state) benchmark::DoNotOptimize(collectives.all_gather(ranks, Bytes{425'984}).alone);
}
BENCHMARK(BM_BuildAllGather)->Unit(benchmark::kMicrosecond);

void BM_BuildAllToAll(benchmark::State& state) {
  const Cluster cluster(topology(), 128);
  Collectives collectives(cluster);
  std::vector<PeerMessage> messages;
  for (int from = 0; from < 128; ++from) {
    for (int to = 0; to < 128; ++to) messages.push_back({from, to, Bytes{65'536}});
  }
  for (auto _ : state) benchmark::DoNotOptimize(collectives.exchange(messages).alone);
}
BENCHMARK(BM_BuildAllToAll)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
