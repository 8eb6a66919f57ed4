#include "sim/study/run_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "sim/study/baselines.h"

namespace longhaul {
namespace {

struct Job {
  const CaseSetup* setup = nullptr;
  const PlannedEntry* planned = nullptr;
  EntryResult* result = nullptr;
};

void run_job(const Job& job, TraceMode trace) {
  *job.result = run_entry(*job.setup, job.planned->entry, job.planned->hidden ? TraceMode::kNone : trace);
  job.result->hidden = job.planned->hidden;
}

// Takes jobs one by one; the first exception stops everybody and is thrown again.
void run_jobs(const std::vector<Job>& jobs, const RunOptions& options) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      try {
        run_job(jobs[i], options.trace);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = jobs.size();
        return;
      }
      const std::lock_guard lock(mutex);
      ++done;
      if (options.progress) options.progress(done, jobs.size());
    }
  };
  {
    std::vector<std::jthread> threads;
    const std::size_t count =
        std::min<std::size_t>(static_cast<std::size_t>(std::max(1, options.threads)), jobs.size());
    for (std::size_t i = 1; i < count; ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

// Tokens that `a` trains while `b` trains one: 1 unless documents wait.
double tokens_over(const EntryResult& a, const EntryResult& b) {
  if (a.summary->tokens == b.summary->tokens) return 1;
  return static_cast<double>(a.summary->tokens) / static_cast<double>(b.summary->tokens);
}

std::optional<double> speedup(const EntryResult& baseline, const EntryResult& entry) {
  if (!baseline.summary || !entry.summary || entry.summary->step == Time::zero()) return std::nullopt;
  return baseline.summary->step.seconds() / entry.summary->step.seconds() * tokens_over(entry, baseline);
}

std::optional<Ratio> ratio(const EntryResult& over, const EntryResult& under) {
  if (!over.summary || !under.summary) return std::nullopt;
  if (over.summary->step == Time::zero() || under.summary->step == Time::zero()) return std::nullopt;
  const bool alike = over.attention_library == under.attention_library;
  Ratio of = ratio_of(over.summary->step, over.summary->widths, under.summary->step, under.summary->widths,
                      alike ? AttentionErrors::kShared : AttentionErrors::kApart);
  const double tokens = tokens_over(under, over);
  for (double* end : {&of.value, &of.low, &of.high}) *end *= tokens;
  return of;
}

void compare_entries(const std::vector<PlannedEntry>& planned, CaseResult& result) {
  const auto is_baseline = [&](const EntryResult& entry) { return entry.label == result.baseline; };
  const auto baseline = std::find_if(result.entries.begin(), result.entries.end(), is_baseline);
  for (std::size_t i = 0; i < planned.size(); ++i) {
    EntryResult& entry = result.entries[i];
    if (baseline != result.entries.end()) {
      entry.speedup = speedup(*baseline, entry);
      entry.over_baseline = ratio(*baseline, entry);
    }
    if (planned[i].own >= 0) {
      const EntryResult& own = result.entries[static_cast<std::size_t>(planned[i].own)];
      entry.own_baseline = own.label;
      entry.speedup_own = speedup(own, entry);
    }
    if (planned[i].alternative >= 0) {
      const EntryResult& other = result.entries[static_cast<std::size_t>(planned[i].alternative)];
      entry.own_alternative = other.label;
      entry.speedup_own_alternative = speedup(other, entry);
    }
    if (!entry.fits() || entry.hidden) continue;
    if (result.winner >= 0) {
      const StepSummary& best = *result.entries[static_cast<std::size_t>(result.winner)].summary;
      if (!is_faster(entry.summary->step, entry.summary->tokens, best.step, best.tokens)) continue;
    }
    result.winner = static_cast<int>(i);
  }
  if (result.winner < 0) return;
  const EntryResult& winner = result.entries[static_cast<std::size_t>(result.winner)];
  for (EntryResult& entry : result.entries) entry.over_winner = ratio(entry, winner);
}

Errors label_errors(const Study& study, const std::vector<std::string>& labels) {
  std::vector<std::string> known;
  for (const StudyCase& study_case : study.cases) {
    for (const StrategyEntry& entry : study_case.strategies) {
      if (std::find(known.begin(), known.end(), entry.label) == known.end()) known.push_back(entry.label);
    }
  }
  Errors errors;
  for (const std::string& label : labels) {
    if (std::find(known.begin(), known.end(), label) != known.end()) continue;
    errors.push_back({"<command line>", "--strategy", fmt::format("the study has no strategy \"{}\"", label),
                      fmt::format("one of {}", fmt::join(known, ", ")), nearest_name(label, known)});
  }
  return errors;
}

}  // namespace

bool StudyResult::any_fits() const {
  return std::any_of(cases.begin(), cases.end(), [](const CaseResult& one) { return one.winner >= 0; });
}

Expected<StudyResult> run_study(const Study& study, const RunOptions& options) {
  Errors errors = label_errors(study, options.labels);
  StudyResult result;
  std::vector<std::vector<PlannedEntry>> planned;
  for (const StudyCase& study_case : study.cases) {
    Expected<CaseSetup> setup = set_up_case(study_case, study.file);
    if (!setup) {
      append(errors, setup.error());
      continue;
    }
    CaseResult& one = result.cases.emplace_back();
    one.name = study_case.name;
    one.baseline = study_case.baseline;
    one.setup = std::make_shared<const CaseSetup>(std::move(*setup));
    planned.push_back(with_baselines(*one.setup, options.labels));
    one.entries.resize(planned.back().size());
    for (const PlannedEntry& entry : planned.back()) {
      if (entry.hidden) continue;  // what a baseline cannot fill costs the speed-up only
      const Errors faults = entry_errors(*one.setup, entry.entry);
      append(errors, faults);
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));

  std::vector<Job> jobs;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    for (std::size_t k = 0; k < planned[i].size(); ++k) {
      jobs.push_back({result.cases[i].setup.get(), &planned[i][k], &result.cases[i].entries[k]});
    }
  }
  // Searches over layouts take the longest: they start first, so that no thread ends long after the others.
  std::stable_partition(jobs.begin(), jobs.end(), [](const Job& job) { return job.planned->entry.layout.best; });
  run_jobs(jobs, options);
  for (std::size_t i = 0; i < planned.size(); ++i) compare_entries(planned[i], result.cases[i]);
  return result;
}

}  // namespace longhaul
