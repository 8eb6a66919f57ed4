// Sampled rows in double precision (validate/device/row_reference.h): 64 rows of one document, heads of llama-3-8B.
#include <benchmark/benchmark.h>

#include <vector>

#include "sim/core/mix.h"
#include "validate/device/row_reference.h"
#include "validate/device/sampled_rows.h"

namespace longhaul {
namespace {

// A step's rows without a step: columns of bf16 numbers between -1 and 1.
struct Rows {
  std::vector<Bf16> values;
  RowView view;
  Rows(std::int64_t rows, std::int64_t columns, std::uint64_t seed) : values(static_cast<std::size_t>(rows * columns)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = to_bf16(static_cast<float>(mix(seed + i) >> 40) / static_cast<float>(1 << 23) - 1.0F);
    }
    view.columns = columns;
    for (std::int64_t i = 0; i < rows; ++i) view.of_row.push_back(values.data() + i * columns);
  }
};

void sampled_rows(benchmark::State& state, const Objective& objective) {
  ModelShape model;
  model.q_heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  Batch batch;
  batch.objective = objective;
  batch.documents = {state.range(0)};
  batch.sequences.push_back({{0}});
  const std::int64_t rows = RowOrder(batch).rows;
  const Rows qkv(rows, model.q_width() + 2 * model.kv_width(), 1), gradient(rows, model.q_width(), 2);
  LayerRows table;
  table.qkv = qkv.view;
  table.d_o = gradient.view;
  const std::vector<std::int64_t> sample = sample_rows(batch, 64, 1);
  for (auto _ : state) benchmark::DoNotOptimize(reference_rows(model, batch, table, sample, 2));
}

void causal(benchmark::State& state) { sampled_rows(state, {}); }
void block_diffusion(benchmark::State& state) {
  Objective objective;
  objective.kind = ObjectiveKind::kBlockDiffusion;
  objective.block_tokens = 32;
  sampled_rows(state, objective);
}

BENCHMARK(causal)->Arg(16384)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
BENCHMARK(block_diffusion)->Arg(16384)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();

}  // namespace
}  // namespace longhaul

BENCHMARK_MAIN();
