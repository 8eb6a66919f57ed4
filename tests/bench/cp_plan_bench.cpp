// Planning speed: one packed sequence of 2^20 tokens on 64 ranks, Algorithm 1 alone and with plans compared by time.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "sim/core/data_files.h"
#include "sim/core/rng.h"
#include "sim/strategies/context_parallel/flashcp.h"
#include "sim/strategies/context_parallel/modelled.h"

namespace longhaul {
namespace {

// `count` documents that fill 2^20 tokens: lengths over a factor of 64, log-uniform by halves.
std::vector<PlannedDocument> documents_of(std::int64_t count) {
  constexpr std::int64_t kTokens = std::int64_t{1} << 20;
  Rng rng(1, "cp plan bench");
  std::vector<std::int64_t> weights;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    weights.push_back((std::int64_t{16} << rng.integer(0, 5)) + rng.integer(0, 15));
    sum += weights.back();
  }
  std::vector<PlannedDocument> documents;
  std::int64_t left = kTokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t tokens =
        i + 1 == count ? left : std::max<std::int64_t>(1, weights[static_cast<std::size_t>(i)] * kTokens / sum);
    documents.push_back({static_cast<DocumentId>(i), tokens});
    left -= tokens;
  }
  return documents;
}

void algorithm_one(benchmark::State& state, FlashCutRule rule) {
  const auto documents = documents_of(state.range(0));
  FlashCpOptions options;
  options.cut_rule = rule;
  for (auto _ : state) benchmark::DoNotOptimize(plan_flashcp(documents, 64, options));
}

// As `flashcp` plans by default: the modelled time of a layer of 32 heads of 128 on 8 nodes of 8 H100.
void by_time(benchmark::State& state) {
  const auto documents = documents_of(state.range(0));
  const auto topology = read_topology("dgx-h100-ndr", data_directory());
  const auto cluster = make_cluster(*topology, 64);
  const auto kernels = load_kernel_model(cluster->device(), data_directory());
  StrategyRequest request;
  request.model.q_heads = request.model.kv_heads = 32;
  request.model.head_dim = 128;
  request.degrees.cp = request.ranks = 64;
  request.cluster = &*cluster;
  request.kernels = &*kernels;
  for (auto _ : state) {
    const CpClock clock(request);
    const CpScore score = [&](const CpPlan& plan) { return clock.layer_seconds(plan, CpTraffic::kNonlast, false); };
    benchmark::DoNotOptimize(plan_flashcp_by_time(documents, 64, {}, {}, score));
  }
}

BENCHMARK_CAPTURE(algorithm_one, equalise, FlashCutRule::kEqualise)
    ->Arg(100)
    ->Arg(1000)
    ->Arg(10000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(algorithm_one, swap, FlashCutRule::kEqualiseSwap)
    ->Arg(100)
    ->Arg(1000)
    ->Arg(10000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(by_time)->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
