// Flows that come and go between random pairs of a 1,024-GPU rail-optimised fat tree: the speed of max-min sharing.
//
// A fixed number of plain flows is active; each that ends is replaced at once by another pair of the same block, with
// 1 to 16 MB. An event is one start or one end of a flow. `eps` is in millionths; 0 is exact. `latency`: the route's
// latency before the bytes move, so that an end and the start that follows it are two changes; without it they are one
// batch of simultaneous changes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/core/rng.h"
#include "sim/network/flow_solver.h"

namespace longhaul {
namespace {

constexpr int kGpus = 1024;

class Churn {
 public:
  Churn(const Cluster& cluster, int active, int block, bool latency, std::uint64_t seed)
      : cluster_(cluster),
        block_(block),
        latency_(latency),
        random_(seed, "churn"),
        slots_(static_cast<std::size_t>(active)) {}

  const Transfer& renew(std::uint32_t slot) {
    const auto blocks = static_cast<std::uint32_t>(kGpus / block_);
    const int first = static_cast<int>(slot % blocks) * block_;
    const auto from = static_cast<int>(random_.integer(0, block_ - 1));
    auto to = static_cast<int>(random_.integer(0, block_ - 2));
    if (to >= from) ++to;
    Transfer& transfer = slots_[slot];
    transfer.loads.clear();
    transfer.byte_seconds = 0;
    const Bytes bytes{random_.integer(1'000'000, 16'000'000)};
    for (const LinkId link : cluster_.route(first + from, first + to)) {
      transfer.loads.push_back({link, bytes.value});
      transfer.byte_seconds =
          std::max(transfer.byte_seconds, bytes / cluster_.links()[static_cast<std::size_t>(link)].bandwidth);
    }
    std::sort(transfer.loads.begin(), transfer.loads.end(),
              [](const LinkLoad& a, const LinkLoad& b) { return a.link < b.link; });
    transfer.latency = latency_ ? cluster_.route_latency(first + from, first + to) : Time::zero();
    transfer.alone = transfer.latency + Time::from_seconds(transfer.byte_seconds);
    return transfer;
  }
  std::uint32_t active() const { return static_cast<std::uint32_t>(slots_.size()); }

 private:
  const Cluster& cluster_;
  int block_;
  bool latency_;
  Rng random_;
  std::vector<Transfer> slots_;
};

// Starts all, then runs until `ends` flows have ended; returns the events.
std::int64_t churn(FlowSolver& solver, Churn& flows, std::int64_t ends) {
  std::int64_t ended = 0;
  std::int64_t started = flows.active();
  for (std::uint32_t slot = 0; slot < flows.active(); ++slot) solver.start(Time::zero(), flows.renew(slot), slot);
  std::vector<std::uint32_t> finished;
  while (ended < ends) {
    finished.clear();
    const Time now = solver.next();
    solver.advance(now, finished);
    ended += static_cast<std::int64_t>(finished.size());
    started += static_cast<std::int64_t>(finished.size());
    for (const std::uint32_t slot : finished) solver.start(now, flows.renew(slot), slot);
  }
  return started + ended;
}

// Arguments: active flows, GPUs a block, flows that end, eps in millionths, latency.
void BM_Churn(benchmark::State& state) {
  const Cluster cluster(*read_topology("dgx-h200-ndr", LONGHAUL_SOURCE_ROOT), kGpus);
  std::int64_t events = 0;
  std::int64_t entries = 0;
  for (auto _ : state) {
    Churn flows(cluster, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), state.range(4) != 0, 1);
    FlowSolver solver(cluster, static_cast<double>(state.range(3)) * 1e-6);
    events += churn(solver, flows, state.range(2));
    entries += solver.solved_entries();
  }
  state.counters["links"] = static_cast<double>(cluster.links().size());
  state.counters["entries_per_event"] = static_cast<double>(entries) / static_cast<double>(events);
  state.counters["events_per_s"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Churn)
    ->ArgNames({"active", "block", "ends", "eps_ppm", "latency"})
    ->Args({1024, 64, 1'000'000, 0, 0})
    ->Args({1024, 64, 1'000'000, 0, 1})
    ->Args({10'000, 1024, 50'000, 0, 0})
    ->Args({10'000, 1024, 50'000, 0, 1})
    ->Args({10'000, 1024, 100'000, 1'000, 0})
    ->Args({10'000, 1024, 100'000, 1'000, 1})
    ->Args({10'000, 1024, 100'000, 10'000, 0})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

std::vector<double> finish_times(FlowSolver& solver, Churn& flows) {
  std::vector<double> finish(flows.active());
  for (std::uint32_t slot = 0; slot < flows.active(); ++slot) solver.start(Time::zero(), flows.renew(slot), slot);
  std::vector<std::uint32_t> finished;
  for (Time now = solver.next(); now != Time::max(); now = solver.next()) {
    finished.clear();
    solver.advance(now, finished);
    for (const std::uint32_t slot : finished) finish[slot] = now.seconds();
  }
  return finish;
}

// 10,000 flows that start at once, each until it ends: how far eps moves the finish times.
void BM_EpsError(benchmark::State& state) {
  const Cluster cluster(*read_topology("dgx-h200-ndr", LONGHAUL_SOURCE_ROOT), kGpus);
  double mean = 0;
  double worst = 0;
  for (auto _ : state) {
    Churn flows(cluster, 10'000, kGpus, false, 2);
    Churn same(cluster, 10'000, kGpus, false, 2);
    FlowSolver exact(cluster);
    FlowSolver within(cluster, static_cast<double>(state.range(0)) * 1e-6);
    const std::vector<double> expected = finish_times(exact, flows);
    const std::vector<double> finish = finish_times(within, same);
    for (std::size_t i = 0; i < finish.size(); ++i) {
      const double off = std::abs(finish[i] / expected[i] - 1);
      mean += off / static_cast<double>(finish.size());
      worst = std::max(worst, off);
    }
  }
  state.counters["mean_off"] = mean;
  state.counters["worst_off"] = worst;
}
BENCHMARK(BM_EpsError)->ArgName("eps_ppm")->Arg(1'000)->Arg(10'000)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
