// The hold model: a queue of constant size; each step pops the earliest event and pushes one at a random later time.
#include <benchmark/benchmark.h>

#include "sim/core/event_queue.h"
#include "sim/core/rng.h"

namespace longhaul {
namespace {

template <class Queue>
void Hold(benchmark::State& state) {
  Rng rng(1, "hold");
  std::vector<std::int64_t> delays;
  for (int i = 0; i < 1 << 16; ++i) delays.push_back(rng.integer(0, state.range(1)));
  Queue queue;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    queue.push(Time::from_ps(delays[static_cast<std::size_t>(i) & 0xffff]), static_cast<std::uint64_t>(i));
  }
  std::size_t at = 0;
  for (auto _ : state) {
    const Event event = queue.pop();
    queue.push(event.time + Time::from_ps(delays[at++ & 0xffff]), event.payload);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}
// Pending events; largest delay in ps: spread out, or with many equal times.
#define LONGHAUL_HOLD_ARGS \
  ->Args({1'000, 1'000'000'000})->Args({100'000, 1'000'000'000})->Args({1'000'000, 1'000'000'000})->Args({100'000, 100})
BENCHMARK(Hold<RadixQueue>) LONGHAUL_HOLD_ARGS;
BENCHMARK(Hold<BinaryHeapQueue>) LONGHAUL_HOLD_ARGS;

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
