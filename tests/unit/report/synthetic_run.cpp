#include "tests/unit/report/synthetic_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

namespace longhaul {
namespace {

// Box and Muller's normal variate.
double normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  return radius * std::cos(2 * std::numbers::pi * rng.uniform());
}

std::int64_t ps_of(double seconds) { return std::max<std::int64_t>(1, std::llround(seconds * 1e12)); }

RunRecord empty_run(int ranks, int repeats) {
  RunRecord record;
  record.identity.version = "0.1.0";
  record.identity.date = "2026-01-02";
  record.hardware.device = "synthetic";
  record.ranks = ranks;
  record.warmups = 2;
  record.repeats = repeats;
  for (int rank = 0; rank < ranks; ++rank) {
    RankRun run;
    run.rank = rank;
    run.step_ps.assign(static_cast<std::size_t>(repeats), 0);
    record.rank_runs.push_back(run);
  }
  return record;
}

// Appends a call that begins where the rank's last one ended.
void add_times(RunRecord& record, MeasuredOp op, const std::vector<std::int64_t>& durations) {
  RankRun& run = record.rank_runs[static_cast<std::size_t>(op.rank)];
  for (std::size_t r = 0; r < durations.size(); ++r) {
    op.start_ps.push_back(run.step_ps[r]);
    if (!op.communication) run.step_ps[r] += durations[r];
    op.end_ps.push_back(op.start_ps.back() + durations[r]);
  }
  record.ops.push_back(std::move(op));
}

}  // namespace

std::vector<std::vector<double>> noise_factors(const Noise& noise, int repeats, std::size_t calls, Rng& rng) {
  std::vector<std::vector<double>> factors;
  for (int r = 0; r < repeats; ++r) {
    const double position = repeats > 1 ? static_cast<double>(r) / (repeats - 1) - 0.5 : 0;
    const double shared = 1 + noise.offset + noise.drift * position + noise.shared * normal(rng);
    std::vector<double>& of = factors.emplace_back();
    for (std::size_t i = 0; i < calls; ++i) {
      double factor = shared * (1 + noise.call * normal(rng));
      if (rng.uniform() < noise.outliers) factor *= 1 + noise.outlier_most * rng.uniform();
      of.push_back(std::max(0.1, factor));
    }
  }
  return factors;
}

RunRecord synthetic_run(const Prediction& prediction, const Noise& noise, int repeats, std::uint64_t seed,
                        const std::function<double(const PredictedOp&)>& factor) {
  const auto ranks = static_cast<int>(prediction.schedule->ranks.size());
  RunRecord record = empty_run(ranks, repeats);
  record.identity.fingerprint = schedule_fingerprint(*prediction.schedule);
  Rng rng(seed, "synthetic run");
  const auto factors = noise_factors(noise, repeats, prediction.ops.size(), rng);
  for (std::size_t i = 0; i < prediction.ops.size(); ++i) {
    const PredictedOp& of = prediction.ops[i];
    MeasuredOp op;
    op.rank = of.rank;
    op.position = of.position;
    op.stream = of.stream;
    op.kind = of.kind;
    op.pass = of.pass;
    op.segment = of.segment;
    op.index = of.index;
    op.layer = of.layer;
    op.chunk = of.chunk;
    op.group = of.group;
    op.label = of.label;
    op.kernel = "synthetic";
    op.communication = of.kind == OpKind::kCollective;
    std::vector<std::int64_t> durations;
    for (int r = 0; r < repeats; ++r) {
      const double times = factors[static_cast<std::size_t>(r)][i] * (factor ? factor(of) : 1.0);
      durations.push_back(ps_of(of.time.seconds() * times));
    }
    add_times(record, std::move(op), durations);
  }
  for (RankRun& run : record.rank_runs) {
    run.planned_peak_bytes = prediction.totals.ranks[static_cast<std::size_t>(run.rank)].peak_bytes;
    run.arena_bytes = prediction.block_bytes[static_cast<std::size_t>(run.rank)];
    if (record.placement == RankPlacement::kVirtual) record.device_peak_bytes += run.arena_bytes;
  }
  return record;
}

RunRecord made_run(const std::vector<MadeKernel>& kernels, const Noise& noise, int repeats, Rng& rng) {
  RunRecord record = empty_run(1, repeats);
  std::size_t calls = 0;
  for (const MadeKernel& kernel : kernels) calls += static_cast<std::size_t>(kernel.calls);
  const auto factors = noise_factors(noise, repeats, calls, rng);
  std::size_t call = 0;
  for (const MadeKernel& kernel : kernels) {
    for (int i = 0; i < kernel.calls; ++i, ++call) {
      MeasuredOp op;
      op.position = static_cast<std::int32_t>(call);
      op.label = kernel.label;
      op.kernel = "synthetic";
      std::vector<std::int64_t> durations;
      for (int r = 0; r < repeats; ++r) {
        durations.push_back(ps_of(kernel.seconds * factors[static_cast<std::size_t>(r)][call]));
      }
      add_times(record, std::move(op), durations);
    }
  }
  return record;
}

}  // namespace longhaul
