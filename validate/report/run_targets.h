// The targets of measured runs: what was asked, what the kept runs say, and what no run covers.
//
// Scopes by what ran: several ranks on one GPU (virtual), one rank on one GPU, several GPUs. Steps of fewer than
// kLongStep tokens serve the comparison of numbers and are shown without a target. Errors are relative, |predicted /
// measured - 1|; the nine in ten is the nearest rank. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "validate/report/runs_table.h"

namespace longhaul {

inline constexpr std::int64_t kLongStep = 65536;  // tokens of a step
inline constexpr double kRankMedianTarget = 0.05, kRankNineInTenTarget = 0.10, kPeakMemoryTarget = 0.05;
inline constexpr double kStepMedianTarget = 0.06, kStepWorstTarget = 0.12, kLayerStepTarget = 0.05;

struct RunTarget {
  std::string scope, name;
  std::optional<double> asked;     // relative error at most; nothing: shown for comparison
  std::optional<double> measured;  // nothing: no run
  std::size_t count = 0;           // ranks, steps or pairs that it stands on
  // Whether it holds; nothing where nothing was asked or no run says.
  std::optional<bool> pass() const {
    if (!asked || !measured) return std::nullopt;
    return *measured <= *asked;
  }
};

// Orders are targets too: asked 0 wrong pairs, measured the number of wrong ones.
std::vector<RunTarget> run_targets(const RunsAccuracy& accuracy);

// Asked combinations of strategy, tokens and ranks (or GPUs) that no counted run has, as one line a scope.
std::vector<std::string> uncovered_runs(const RunsAccuracy& accuracy);

}  // namespace longhaul
