#include "sim/study/entry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/analysis/lower_bound.h"
#include "sim/core/invariant.h"
#include "sim/executor/simulate.h"
#include "sim/strategies/registry.h"
#include "sim/study/fit_search.h"
#include "sim/study/memory_envelope.h"
#include "sim/study/trace_end.h"
#include "sim/study/trace_ranks.h"

namespace longhaul {
namespace {

// Runs of more ops than this are traced only until the chosen chunks have been recorded (sim/study/trace_end.h).
constexpr std::int64_t kLongRunOps = 2'000'000;

struct Candidate {
  Degrees degrees;
  PlannedStep planned;
  Time bound;
};

struct Ran {
  Degrees degrees;
  PlannedStep planned;
  Totals totals;
};

std::int64_t peak_bytes(const Totals& totals) {
  std::int64_t peak = 0;
  for (const RankTotals& rank : totals.ranks) peak = std::max(peak, rank.peak_bytes);
  return peak;
}

// A fitting layout before one that does not fit; then the faster; of those that do not fit, the one with less memory.
bool is_better(const Totals& a, std::int64_t a_tokens, const Totals& b, std::int64_t b_tokens, std::int64_t limit) {
  const bool a_fits = peak_bytes(a) <= limit;
  const bool b_fits = peak_bytes(b) <= limit;
  if (a_fits != b_fits) return a_fits;
  if (a_fits) return is_faster(a.step, a_tokens, b.step, b_tokens);
  return peak_bytes(a) < peak_bytes(b);
}

Totals run(const CaseSetup& setup, const StrategyEntry& entry, const PlannedStep& planned,
           const SimulationOptions& options = {}) {
  return simulate(*planned.schedule, setup.cluster, setup.kernels_of(entry), options);
}

// Plans every layout, then simulates them from the lowest bound on and stops where no other can win.
std::optional<Ran> run_best(const CaseSetup& setup, const StrategyEntry& entry, EntryResult& result) {
  const Strategy& strategy = *find_strategy(entry.name);
  const KernelDurations durations(setup.kernels_of(entry));
  std::vector<Candidate> candidates;
  std::string reason = "no layout is legal";
  for (const Degrees& degrees : candidate_degrees(strategy.family, setup)) {
    Planned planned = plan_entry(setup, entry, degrees, 0);
    if (planned) {
      const Time bound = compute_lower_bound(*planned->schedule, durations);
      candidates.push_back({degrees, std::move(*planned), bound});
    } else {
      reason = planned.error();
    }
  }
  if (candidates.empty()) {
    result.not_applicable = reason;
    return std::nullopt;
  }
  result.layouts_legal = static_cast<int>(candidates.size());
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return is_faster(a.bound, a.planned.tokens(), b.bound, b.planned.tokens());
  });
  std::optional<Ran> best;
  const std::int64_t limit = setup.memory_limit();
  for (Candidate& candidate : candidates) {
    const std::int64_t tokens = candidate.planned.tokens();
    if (best && peak_bytes(best->totals) <= limit &&
        !is_faster(candidate.bound, tokens, best->totals.step, best->planned.tokens())) {
      break;
    }
    Totals totals = run(setup, entry, candidate.planned);
    LH_ASSERT(candidate.bound <= totals.step, "lower bound {} ps above the step of {} ps", candidate.bound.ps(),
              totals.step.ps());
    ++result.layouts_simulated;
    if (!best || is_better(totals, tokens, best->totals, best->planned.tokens(), limit)) {
      best = Ran{candidate.degrees, std::move(candidate.planned), std::move(totals)};
    }
  }
  return best;
}

std::optional<Ran> run_fixed(const CaseSetup& setup, const StrategyEntry& entry, EntryResult& result) {
  const tl::expected<Degrees, std::string> degrees = entry_degrees(setup, entry);
  if (!degrees) {
    result.not_applicable = degrees.error();
    return std::nullopt;
  }
  result.degrees = *degrees;
  Planned planned = plan_entry(setup, entry, *degrees, 0);
  if (!planned) {
    result.not_applicable = planned.error();
    return std::nullopt;
  }
  Totals totals = run(setup, entry, *planned);
  return Ran{*degrees, std::move(*planned), std::move(totals)};
}

std::shared_ptr<const EntryTrace> record(const CaseSetup& setup, const StrategyEntry& entry, const Ran& ran,
                                         StrategyFamily family, TraceMode mode) {
  auto trace =
      std::make_shared<EntryTrace>(choose_trace(*ran.planned.schedule, ran.totals, setup.cluster, family, mode));
  trace->schedule = ran.planned.schedule;
  MemoryEnvelope envelope(ran.totals.step, trace->timeline);
  SimulationOptions options;
  options.sink = mode == TraceMode::kAll ? static_cast<TimelineSink*>(&trace->timeline) : &envelope;
  options.trace.ranks = trace->ranks;
  options.trace.chunks_below = trace->chunks;
  UntilRecorded until(*options.sink, traced_ops(*ran.planned.schedule, trace->ranks, trace->chunks));
  const bool cut = mode == TraceMode::kChosen && ran.totals.ops > kLongRunOps;
  if (cut) options.sink = &until;
  try {
    const Totals again = run(setup, entry, ran.planned, options);
    LH_ASSERT(again.step == ran.totals.step, "the traced run took {} ps, the first {} ps", again.step.ps(),
              ran.totals.step.ps());
  } catch (const TraceComplete&) {
    LH_ASSERT(cut, "a traced run of {} ops ended early", ran.totals.ops);
  }
  envelope.finish();
  return trace;
}

void add_note(EntryResult& result, const std::string& line) { result.note += (result.note.empty() ? "" : "; ") + line; }

// "sequences cut: 3 by document, 13 by sequence", of all steps.
std::string cuts_line(const std::map<std::string, std::int64_t>& cuts) {
  std::string line;
  for (const auto& [cut, count] : cuts) {
    line += (line.empty() ? "sequences cut: " : ", ") + std::to_string(count) + " " + cut;
  }
  return line;
}

}  // namespace

Planned plan_entry(const CaseSetup& setup, const StrategyEntry& entry, const Degrees& degrees, std::size_t step) {
  const Strategy& strategy = *find_strategy(entry.name);
  StrategyRequest request = make_request(setup, entry, degrees, step);
  const tl::expected<void, std::string> applicable = check_applicable(strategy, request);
  if (!applicable) return tl::unexpected(applicable.error());
  if (strategy.select) {
    const auto selected = strategy.select(request, std::span(setup.batches).first(step + 1));
    if (!selected) return tl::unexpected(selected.error());
  }
  return strategy.plan(request);
}

EntryResult run_entry(const CaseSetup& setup, const StrategyEntry& entry, TraceMode trace) {
  const Strategy& strategy = *find_strategy(entry.name);
  EntryResult result;
  result.case_name = setup.study_case->name;
  result.label = entry.label;
  result.strategy = entry.name;
  result.attention_library = entry.attention_library;
  result.note = strategy.note;
  result.micro_batch_sequences = entry.micro_batch_sequences;
  result.best = entry.layout.best;
  std::optional<Ran> ran = entry.layout.best ? run_best(setup, entry, result) : run_fixed(setup, entry, result);
  if (!ran) return result;
  result.degrees = ran->degrees;

  Training training = setup.study_case->training;
  training.micro_batch_sequences = entry.micro_batch_sequences;
  const KernelModel& kernels = setup.kernels_of(entry);
  std::vector<StepSummary> steps = {summarize(ran->totals, *ran->planned.schedule, training, setup.cluster, kernels)};
  std::map<std::string, std::int64_t> cuts = ran->planned.cuts;
  for (std::size_t step = 1; step < setup.batches.size(); ++step) {
    const Planned planned = plan_entry(setup, entry, ran->degrees, step);
    if (!planned) {
      result.not_applicable = "step " + std::to_string(step) + ": " + planned.error();
      return result;
    }
    for (const auto& [cut, count] : planned->cuts) cuts[cut] += count;
    steps.push_back(summarize(run(setup, entry, *planned), *planned->schedule, training, setup.cluster, kernels));
  }
  result.summary = mean_of(steps);
  if (strategy.select) {
    StrategyRequest request = make_request(setup, entry, ran->degrees, setup.batches.size() - 1);
    const auto selected = strategy.select(request, setup.batches);
    if (selected && !selected->empty()) add_note(result, *selected);
  }
  if (!entry.attention_library.empty()) add_note(result, "attention: " + entry.attention_library);
  if (!cuts.empty()) add_note(result, cuts_line(cuts));
  if (result.summary->peak_bytes > setup.memory_limit()) {
    result.does_not_fit = search_fit(setup, entry, ran->degrees, *result.summary);
  }
  if (trace != TraceMode::kNone) result.trace = record(setup, entry, *ran, strategy.family, trace);
  return result;
}

}  // namespace longhaul
