// An all-to-all over the ranks of a rail-optimised fat tree, as one transfer and as a flow for every two ranks: one
// takes microseconds, the other seconds for a million flows, and both end at the same time.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/collectives.h"
#include "sim/network/flow_solver.h"

namespace longhaul {
namespace {

constexpr std::int64_t kBytes = 1'234'567;  // from every rank to every other

Cluster cluster_of(std::int64_t ranks) {
  return Cluster(*read_topology("dgx-h200-ndr", LONGHAUL_SOURCE_ROOT), static_cast<int>(ranks));
}

void time_alone(const Cluster& cluster, Transfer& transfer) {
  for (const LinkLoad& load : transfer.loads) {
    transfer.byte_seconds = std::max(
        transfer.byte_seconds, Bytes{load.bytes} / cluster.links()[static_cast<std::size_t>(load.link)].bandwidth);
  }
  transfer.alone = transfer.latency + Time::from_seconds(transfer.byte_seconds);
}

// The sums of all flows; no latency.
Transfer one_transfer(const Cluster& cluster) {
  std::vector<std::int64_t> bytes(cluster.links().size());
  for (int from = 0; from < cluster.gpus(); ++from) {
    for (int to = 0; to < cluster.gpus(); ++to) {
      if (from == to) continue;
      for (const LinkId link : cluster.route(from, to)) bytes[static_cast<std::size_t>(link)] += kBytes;
    }
  }
  Transfer transfer;
  for (std::size_t link = 0; link < bytes.size(); ++link) {
    if (bytes[link] > 0) transfer.loads.push_back({static_cast<LinkId>(link), bytes[link]});
  }
  time_alone(cluster, transfer);
  return transfer;
}

Time end_of(FlowSolver& solver) {
  std::vector<std::uint32_t> ended;
  Time last;
  for (Time next = solver.next(); next != Time::max(); next = solver.next()) {
    ended.clear();
    solver.advance(next, ended);
    if (!ended.empty()) last = next;
  }
  return last;
}

void BM_AllToAllAsOneTransfer(benchmark::State& state) {
  const Cluster cluster = cluster_of(state.range(0));
  const Transfer whole = one_transfer(cluster);
  for (auto _ : state) {
    FlowSolver solver(cluster);
    solver.start(Time::zero(), whole, 0);
    if (end_of(solver) != whole.alone) state.SkipWithError("not its time alone");
  }
}
BENCHMARK(BM_AllToAllAsOneTransfer)->Arg(1024)->Unit(benchmark::kMicrosecond);

// As studies do: made as NCCL would do it, its bytes those of the flows, run to its end.
void BM_AllToAllMadeAndRun(benchmark::State& state) {
  const Cluster cluster = cluster_of(state.range(0));
  const Transfer sums = one_transfer(cluster);
  std::vector<int> ranks(static_cast<std::size_t>(cluster.gpus()));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (auto _ : state) {
    Collectives collectives(cluster);
    const Transfer whole = collectives.all_to_all(ranks, Bytes{kBytes});
    FlowSolver solver(cluster);
    solver.start(Time::zero(), whole, 0);
    if (end_of(solver) != whole.alone) state.SkipWithError("not its time alone");
    if (whole.loads != sums.loads) state.SkipWithError("not the bytes of its flows");
  }
}
BENCHMARK(BM_AllToAllMadeAndRun)->Arg(1024)->Unit(benchmark::kMicrosecond);

// Ends within a picosecond of the one transfer, or the benchmark fails.
void BM_AllToAllAsFlows(benchmark::State& state) {
  const Cluster cluster = cluster_of(state.range(0));
  const Transfer whole = one_transfer(cluster);
  std::vector<Transfer> flows;
  for (int from = 0; from < cluster.gpus(); ++from) {
    for (int to = 0; to < cluster.gpus(); ++to) {
      if (from == to) continue;
      Transfer flow;
      for (const LinkId link : cluster.route(from, to)) flow.loads.push_back({link, kBytes});
      std::sort(flow.loads.begin(), flow.loads.end(),
                [](const LinkLoad& a, const LinkLoad& b) { return a.link < b.link; });
      time_alone(cluster, flow);
      flows.push_back(std::move(flow));
    }
  }
  for (auto _ : state) {
    FlowSolver solver(cluster);
    for (std::size_t flow = 0; flow < flows.size(); ++flow) {
      solver.start(Time::zero(), flows[flow], static_cast<std::uint32_t>(flow));
    }
    const Time end = end_of(solver);
    state.counters["off_ps"] = static_cast<double>((end - whole.alone).ps());
    if (std::abs((end - whole.alone).ps()) > 1) state.SkipWithError("not the time of the one transfer");
  }
  state.counters["flows"] = static_cast<double>(flows.size());
}
BENCHMARK(BM_AllToAllAsFlows)->Arg(64)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
