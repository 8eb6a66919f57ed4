#include "sim/study/baselines.h"

#include <algorithm>

#include "sim/strategies/registry.h"

namespace longhaul {
namespace {

bool same_layout(const LayoutRequest& a, const LayoutRequest& b) {
  return a.best == b.best && a.degrees.tp == b.degrees.tp && a.degrees.pp == b.degrees.pp &&
         a.degrees.cp == b.degrees.cp && a.degrees.sp == b.degrees.sp && a.degrees.dp == b.degrees.dp &&
         a.degrees.ep == b.degrees.ep;
}

// Index of the wanted entry; adds it, hidden, if there is none.
int find_or_add(std::vector<PlannedEntry>& entries, const StrategyEntry& wanted) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const StrategyEntry& entry = entries[i].entry;
    if (entry.name == wanted.name && entry.micro_batch_sequences == wanted.micro_batch_sequences &&
        entry.attention_library == wanted.attention_library && same_layout(entry.layout, wanted.layout) &&
        (!entries[i].hidden || entry.options == wanted.options)) {
      return static_cast<int>(i);
    }
  }
  entries.push_back({wanted, true, -1, -1});
  return static_cast<int>(entries.size()) - 1;
}

StrategyEntry baseline_of(const StrategyEntry& entry, const Strategy& strategy, const Strategy& baseline) {
  StrategyEntry wanted = entry;
  wanted.name = baseline.name;
  wanted.label = baseline.name + " (baseline of " + entry.label + ")";
  wanted.options = Json::object();
  if (baseline.family != strategy.family) wanted.layout = {};
  return wanted;
}

// Ulysses on N / B of BASP's N ranks, one sequence at a time, B times as many groups.
std::optional<StrategyEntry> alternative_of(const CaseSetup& setup, const StrategyEntry& entry) {
  if (entry.name != "basp" || entry.micro_batch_sequences < 2 || entry.layout.best) return std::nullopt;
  const tl::expected<Degrees, std::string> degrees = entry_degrees(setup, entry);
  if (!degrees || degrees->sp % entry.micro_batch_sequences != 0) return std::nullopt;
  const int batch = static_cast<int>(entry.micro_batch_sequences);
  StrategyEntry wanted = entry;
  wanted.name = "ulysses";
  wanted.label = "ulysses (micro-batch 1, baseline of " + entry.label + ")";
  wanted.options = Json::object();
  wanted.micro_batch_sequences = 1;
  wanted.layout.degrees = {};
  wanted.layout.degrees.sp = degrees->sp / batch;
  wanted.layout.degrees.dp = degrees->dp * batch;
  return wanted;
}

}  // namespace

std::vector<PlannedEntry> with_baselines(const CaseSetup& setup, const std::vector<std::string>& labels) {
  std::vector<PlannedEntry> entries;
  for (const StrategyEntry& entry : setup.study_case->strategies) {
    const bool wanted = labels.empty() || std::find(labels.begin(), labels.end(), entry.label) != labels.end();
    if (wanted || entry.label == setup.study_case->baseline) entries.push_back({entry, !wanted, -1, -1});
  }
  const std::size_t given = entries.size();
  for (std::size_t i = 0; i < given; ++i) {
    const StrategyEntry entry = entries[i].entry;  // a copy: find_or_add may move the vector
    const Strategy* strategy = find_strategy(entry.name);
    if (!runs_workload(*strategy, setup)) continue;
    const Strategy* baseline = find_strategy(strategy->baseline);
    if (baseline == strategy) {
      entries[i].own = static_cast<int>(i);
    } else if (baseline != nullptr) {
      entries[i].own = find_or_add(entries, baseline_of(entry, *strategy, *baseline));
    }
    if (const auto alternative = alternative_of(setup, entry)) {
      entries[i].alternative = find_or_add(entries, *alternative);
    }
  }
  return entries;
}

}  // namespace longhaul
