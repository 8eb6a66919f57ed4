#include "validate/report/run_targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "sim/core/order_statistics.h"

namespace longhaul {
namespace {

using Filter = std::function<bool(const JudgedRun&)>;

bool is_virtual(const JudgedRun& run) { return run.comparison.placement == RankPlacement::kVirtual; }
bool is_long(const JudgedRun& run) { return run.tokens >= kLongStep; }
bool on_several_gpus(const JudgedRun& run) { return !is_virtual(run) && run.comparison.ranks > 1; }
bool on_one_gpu(const JudgedRun& run) { return !is_virtual(run) && run.comparison.ranks == 1; }

std::vector<const JudgedRun*> those(const RunsAccuracy& accuracy, const Filter& filter) {
  std::vector<const JudgedRun*> runs;
  for (const JudgedRun& run : accuracy.runs) {
    if (run.left_out.empty() && filter(run)) runs.push_back(&run);
  }
  return runs;
}

// Of no values: none.
std::optional<double> median_if_any(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(median(values));
}

std::optional<double> nearest_rank_if_any(const std::vector<double>& values, double part) {
  return values.empty() ? std::nullopt : std::optional(nearest_rank(values, part));
}

void add_sizes(const std::vector<ComparedRow>& rows, std::vector<double>& sizes) {
  for (const ComparedRow& row : rows) {
    if (row.source == Source::kMeasured && row.measured > 0) sizes.push_back(std::abs(row.error()));
  }
}

std::vector<double> rank_errors(const std::vector<const JudgedRun*>& runs) {
  std::vector<double> sizes;
  for (const JudgedRun* run : runs) add_sizes(run->comparison.rank_compute, sizes);
  return sizes;
}

std::vector<double> memory_errors(const std::vector<const JudgedRun*>& runs) {
  std::vector<double> sizes;
  for (const JudgedRun* run : runs) {
    // What a virtual rank allocates follows from the same plan as its prediction; the device's own count does not.
    const std::vector<ComparedRow>& rows = run->comparison.peak_memory;
    if (!is_virtual(*run)) {
      add_sizes(rows, sizes);
    } else if (!rows.empty() && rows.size() > static_cast<std::size_t>(run->comparison.ranks)) {
      add_sizes({rows.back()}, sizes);
    }
  }
  return sizes;
}

std::vector<double> step_errors(const std::vector<const JudgedRun*>& runs) {
  std::vector<double> sizes;
  for (const JudgedRun* run : runs) add_sizes({run->comparison.step}, sizes);
  return sizes;
}

// Wrong pairs among those that differ by the measured interval alone, and among those beyond the prediction's too.
void add_order_targets(const std::string& scope, const std::vector<const JudgedRun*>& runs, bool asked,
                       std::vector<RunTarget>& targets) {
  std::vector<Comparison> compared;
  for (const JudgedRun* run : runs) compared.push_back(run->comparison);
  const Orders orders = compare_orders(compared);
  RunTarget beyond{scope, "pairs of strategies beyond the interval in the wrong order of compute", {}, {}, 0};
  RunTarget all{scope, "pairs of strategies as measured in the wrong order of compute", {}, {}, orders.pairs.size()};
  if (asked) beyond.asked = 0;
  double wrong = 0, wrong_beyond = 0;
  for (const OrderedPair& pair : orders.pairs) {
    beyond.count += pair.beyond() ? 1 : 0;
    wrong += pair.right() ? 0 : 1;
    wrong_beyond += pair.beyond() && !pair.right() ? 1 : 0;
  }
  if (all.count > 0) all.measured = wrong;
  if (beyond.count > 0) beyond.measured = wrong_beyond;
  targets.push_back(beyond);
  targets.push_back(all);
}

void add_rank_targets(const std::string& scope, const std::vector<const JudgedRun*>& runs, bool asked,
                      std::vector<RunTarget>& targets) {
  const std::vector<double> ranks = rank_errors(runs), memory = memory_errors(runs);
  const auto wanted = [&](double limit) { return asked ? std::optional(limit) : std::nullopt; };
  targets.push_back(
      {scope, "kernel time of a rank, median", wanted(kRankMedianTarget), median_if_any(ranks), ranks.size()});
  targets.push_back({scope, "kernel time of a rank, nine in ten", wanted(kRankNineInTenTarget),
                     nearest_rank_if_any(ranks, 0.9), ranks.size()});
  targets.push_back(
      {scope, "peak memory, worst", wanted(kPeakMemoryTarget), nearest_rank_if_any(memory, 1), memory.size()});
  add_order_targets(scope, runs, asked, targets);
}

struct Wanted {
  std::string scope;
  Filter counts;
  std::vector<const char*> strategies;
  std::vector<std::int32_t> ranks;
};

std::vector<Wanted> wanted_runs() {
  return {
      {"virtual ranks",
       is_virtual,
       {"flashcp", "basp", "csbp", "dpp", "allgather-cp", "per-doc-cp", "ulysses", "bd-offset-cp", "1f1b", "seq1f1b"},
       {4, 8}},
      {"several GPUs",
       on_several_gpus,
       {"allgather-cp", "zigzag-cp", "per-doc-cp", "flashcp", "ulysses", "basp", "csbp", "bd-offset-cp", "1f1b",
        "seq1f1b", "dpp"},
       {2, 4, 8}}};
}

constexpr std::int64_t kLongSteps[] = {kLongStep, 2 * kLongStep};

}  // namespace

std::vector<RunTarget> run_targets(const RunsAccuracy& accuracy) {
  std::vector<RunTarget> targets;
  add_rank_targets("virtual ranks, 64K tokens and more",
                   those(accuracy, [](const JudgedRun& run) { return is_virtual(run) && is_long(run); }), true,
                   targets);
  add_rank_targets("virtual ranks, shorter steps",
                   those(accuracy, [](const JudgedRun& run) { return is_virtual(run) && !is_long(run); }), false,
                   targets);
  const std::string gpus = "several GPUs";
  const std::vector<const JudgedRun*> real = those(accuracy, on_several_gpus);
  const std::vector<double> steps = step_errors(real);
  targets.push_back({gpus, "whole step, median", kStepMedianTarget, median_if_any(steps), steps.size()});
  targets.push_back({gpus, "whole step, worst", kStepWorstTarget, nearest_rank_if_any(steps, 1), steps.size()});
  add_rank_targets(gpus, real, true, targets);
  const std::string one = "one GPU";
  const std::vector<const JudgedRun*> alone = those(accuracy, on_one_gpu);
  const std::vector<double> layers = step_errors(alone);
  targets.push_back(
      {one, "whole step of a layer, worst", kLayerStepTarget, nearest_rank_if_any(layers, 1), layers.size()});
  add_rank_targets(one, alone, true, targets);
  return targets;
}

std::vector<std::string> uncovered_runs(const RunsAccuracy& accuracy) {
  std::vector<std::string> lines;
  for (const Wanted& wanted : wanted_runs()) {
    std::set<std::string> has;
    for (const JudgedRun* run : those(accuracy, wanted.counts)) {
      has.insert(fmt::format("{} {} {}", run->comparison.strategy, run->tokens, run->comparison.ranks));
    }
    std::vector<std::string> missing;
    std::size_t asked = 0, covered = 0;
    for (const char* strategy : wanted.strategies) {
      std::vector<std::string> of_strategy;
      for (const std::int32_t ranks : wanted.ranks) {
        for (const std::int64_t tokens : kLongSteps) {
          ++asked;
          if (has.contains(fmt::format("{} {} {}", strategy, tokens, ranks))) {
            ++covered;
          } else {
            of_strategy.push_back(fmt::format("{}K on {}", tokens / 1024, ranks));
          }
        }
      }
      const bool none = of_strategy.size() == wanted.ranks.size() * std::size(kLongSteps);
      if (!of_strategy.empty()) {
        missing.push_back(none ? strategy : fmt::format("{} ({})", strategy, fmt::join(of_strategy, ", ")));
      }
    }
    lines.push_back(fmt::format("{}: {} of {} asked runs are kept{}", wanted.scope, covered, asked,
                                missing.empty() ? "" : fmt::format("; none of {}", fmt::join(missing, ", "))));
  }
  return lines;
}

}  // namespace longhaul
