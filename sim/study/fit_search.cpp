#include "sim/study/fit_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/executor/simulate.h"
#include "sim/strategies/registry.h"

namespace longhaul {
namespace {

struct Change {
  Training training;
  Degrees degrees;
};

int shared_degree(const Degrees& degrees) { return degrees.pp * degrees.cp * degrees.sp; }

// Degrees with more ranks for one sequence than `degrees`, the nearest first.
std::vector<Degrees> larger_degrees(StrategyFamily family, const CaseSetup& setup, const Degrees& degrees) {
  std::vector<Degrees> larger;
  for (const Degrees& candidate : candidate_degrees(family, setup)) {
    if (candidate.pp >= degrees.pp && candidate.sp >= degrees.sp && candidate.cp >= degrees.cp &&
        candidate.dp < degrees.dp) {
      larger.push_back(candidate);
    }
  }
  std::stable_sort(larger.begin(), larger.end(),
                   [](const Degrees& a, const Degrees& b) { return shared_degree(a) < shared_degree(b); });
  return larger;
}

std::vector<Training> smaller_trainings(const Training& training) {
  std::vector<Training> list;
  Training changed = training;
  if (training.recompute == Recompute::kNone) {
    changed.recompute = Recompute::kFull;
    list.push_back(changed);
  }
  if (training.zero_stage != 3) {
    Training sharded = training;
    sharded.zero_stage = 3;
    list.push_back(sharded);
    if (training.recompute == Recompute::kNone) {
      changed.zero_stage = 3;
      list.push_back(changed);
    }
  }
  return list;
}

std::string change_text(const Training& from, const Change& to, const Degrees& degrees) {
  std::vector<std::string> parts;
  if (to.training.micro_batch_sequences != from.micro_batch_sequences) {
    parts.push_back(fmt::format("micro_batch_sequences {}", to.training.micro_batch_sequences));
  }
  if (to.training.recompute != from.recompute) parts.push_back("recompute full");
  if (to.training.zero_stage != from.zero_stage) parts.push_back(fmt::format("zero_stage {}", to.training.zero_stage));
  if (!(to.degrees == degrees)) parts.push_back(fmt::format("layout {}", degrees_text(to.degrees)));
  return fmt::format("{}", fmt::join(parts, " and "));
}

bool fits(const CaseSetup& setup, const StrategyEntry& entry, const Change& change) {
  const Strategy& strategy = *find_strategy(entry.name);
  StrategyRequest request = make_request(setup, entry, change.degrees, 0);
  request.training = change.training;
  if (!check_applicable(strategy, request)) return false;
  const Planned planned = strategy.plan(request);
  if (!planned) return false;
  const Totals totals = simulate(*planned->schedule, setup.cluster, setup.kernels_of(entry));
  return std::all_of(totals.ranks.begin(), totals.ranks.end(),
                     [&](const RankTotals& rank) { return rank.peak_bytes <= setup.memory_limit(); });
}

}  // namespace

DoesNotFit search_fit(const CaseSetup& setup, const StrategyEntry& entry, const Degrees& degrees,
                      const StepSummary& summary) {
  DoesNotFit result;
  result.needed_bytes = summary.peak_bytes;
  result.limit_bytes = setup.memory_limit();
  result.rank = summary.peak_rank;
  result.category = largest_category(summary.peak_categories);

  Training training = setup.study_case->training;
  training.micro_batch_sequences = entry.micro_batch_sequences;
  std::vector<Training> trainings = smaller_trainings(training);
  std::vector<Change> changes;
  if (training.micro_batch_sequences > 1) {
    Training single = training;
    single.micro_batch_sequences = 1;
    changes.push_back({single, degrees});
  }
  for (const Training& smaller : trainings) changes.push_back({smaller, degrees});
  if (trainings.empty()) trainings.push_back(training);
  for (const Degrees& larger : larger_degrees(find_strategy(entry.name)->family, setup, degrees)) {
    changes.push_back({training, larger});
    if (!(trainings.back().recompute == training.recompute && trainings.back().zero_stage == training.zero_stage)) {
      changes.push_back({trainings.back(), larger});
    }
  }
  for (const Change& change : changes) {
    result.checked.push_back(change_text(training, change, degrees));
    if (fits(setup, entry, change)) {
      result.change = result.checked.back();
      return result;
    }
  }
  return result;
}

}  // namespace longhaul
