// Flows that come and go between random pairs of a 1,024-GPU rail-optimised fat tree: the speed of max-min sharing.
//
// A fixed number of plain flows is active; each that ends is replaced at once by another pair of the same block, with
// 1 to 16 MB. An event is one start or one end of a flow. `eps` is in millionths; 0 is exact. `latency`: the route's
// latency before the bytes move, so that an end and the start that follows it are two changes; without it they are one
// batch of simultaneous changes.
#include <benchmark/benchmark.h>

#include <algorithm>
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
    ->Args({1024, 64, 100'000, 0, 0})
    ->Args({1024, 64, 100'000, 0, 1})
    ->Args({10'000, 1024, 20'000, 0, 1})
    ->Args({10'000, 1024, 20'000, 0, 0})
    ->Args({10'000, 1024, 50'000, 1000, 0})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
