// A 64 MB ring all-reduce on 1,024 ranks, chunk by chunk (tests/bench/ring_chunks.h): 2,046 steps of 1,024 sends of
// 62,500 bytes over one hop, or over four hops with the chunk stored before each.
#include <benchmark/benchmark.h>

#include "tests/bench/ring_chunks.h"

namespace longhaul {
namespace {

constexpr int kRanks = 1024;
constexpr std::int64_t kChunk = 64'000'000 / kRanks;

// As many links of one rate as the ring needs.
Cluster equal_links(int links) {
  Topology topology = *read_topology("dgx-h200-ndr", LONGHAUL_SOURCE_ROOT);
  topology.nic.rated = topology.nvlink.rated;
  topology.nic.efficiency = topology.nvlink.efficiency;
  Cluster cluster(topology, 8);
  for (int nodes = 1; static_cast<int>(cluster.links().size()) < links; nodes *= 2)
    cluster = Cluster(topology, 16 * nodes);
  return cluster;
}

// Arguments: hops, latency of a hop in ns.
void BM_ChunkRing(benchmark::State& state) {
  const int hops = static_cast<int>(state.range(0));
  const Cluster cluster = equal_links(kRanks * hops);
  const ChunkRing ring = chunk_ring(cluster, kRanks, hops, kChunk, Time::from_ps(state.range(1) * 1000));
  const Time closed_form = Time::from_ps(std::int64_t{2 * (kRanks - 1)} * hops * ring.sends[0].alone.ps());
  for (auto _ : state) {
    FlowSolver solver(cluster);
    if (run_chunk_ring(solver, ring) != closed_form) state.SkipWithError("not the closed form");
  }
  state.counters["sends"] = 2.0 * (kRanks - 1) * kRanks * hops;
  state.counters["end_us"] = closed_form.us();
}
BENCHMARK(BM_ChunkRing)
    ->ArgNames({"hops", "latency_ns"})
    ->Args({1, 0})
    ->Args({1, 600})
    ->Args({4, 0})
    ->Args({4, 600})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(2);

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
