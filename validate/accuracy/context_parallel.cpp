#include "validate/accuracy/context_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "sim/core/invariant.h"
#include "sim/network/nccl_residuals.h"
#include "sim/study/entry_run.h"

namespace longhaul {
namespace {

using Q = PublishedQuantity;

// The sequences of `batch`, each a batch of its own.
std::vector<std::shared_ptr<const Batch>> one_by_one(const Batch& batch) {
  std::vector<std::shared_ptr<const Batch>> out;
  for (const Sequence& sequence : batch.sequences) {
    Batch one;
    one.objective = batch.objective;
    one.context_tokens = batch.context_tokens;
    Sequence& only = one.sequences.emplace_back();
    only.tokens = sequence.tokens;
    for (const DocumentId document : sequence.documents) {
      only.documents.push_back(static_cast<DocumentId>(one.documents.size()));
      one.documents.push_back(batch.documents[static_cast<std::size_t>(document)]);
    }
    out.push_back(std::make_shared<const Batch>(std::move(one)));
  }
  return out;
}

CaseSetup setup_of(const StudyCase& study_case, const StrategyEntry& entry, const std::string& file) {
  Expected<CaseSetup> setup = set_up_case(study_case, file);
  if (!setup) throw LimitError(setup.error().front().to_string());
  setup->kernels = setup->kernels_of(entry);  // of the one row that runs
  std::vector<std::shared_ptr<const Batch>> batches;
  for (const std::shared_ptr<const Batch>& batch : setup->batches) {
    for (auto& one : one_by_one(*batch)) batches.push_back(std::move(one));
  }
  setup->batches = std::move(batches);
  return std::move(*setup);
}

PassTimes times_of(const StepSummary& step) {
  PassTimes times;
  const auto part = [&](TimePart p) { return step.split[p].seconds(); };
  times.step = step.step.seconds();
  times.low = step.low.seconds();
  times.high = step.high.seconds();
  times.communication = part(TimePart::kExposedCommunication);
  Time attention;
  for (const RankSummary& rank : step.ranks) attention = std::max(attention, rank.attention);
  times.attention = attention.seconds() + part(TimePart::kContention);
  // A step's widths let waits grow with the kernels (sim/analysis/uncertainty.h); copies alone do not.
  const double waits = part(TimePart::kBubble) + part(TimePart::kImbalance) + part(TimePart::kTail);
  const double busy = part(TimePart::kCompute) + part(TimePart::kRecompute) + part(TimePart::kOptimizer);
  const double alone = busy > 0 ? busy / (busy + waits) : 1;
  for (const KernelKind kind : {KernelKind::kElementwise, KernelKind::kCopyDeviceToDevice}) {
    times.copies_below += alone * step.widths.below[static_cast<std::size_t>(kind)];
    times.copies_above += alone * step.widths.above[static_cast<std::size_t>(kind)];
  }
  times.copies = times.step - times.communication - times.attention;
  return times;
}

PassTimes mean_of(const std::vector<PassTimes>& each) {
  constexpr double PassTimes::*kMembers[] = {&PassTimes::step,         &PassTimes::low,           &PassTimes::high,
                                             &PassTimes::attention,    &PassTimes::communication, &PassTimes::copies,
                                             &PassTimes::copies_below, &PassTimes::copies_above};
  PassTimes mean;
  for (const auto member : kMembers) {
    for (const PassTimes& one : each) mean.*member += one.*member;
    mean.*member /= static_cast<double>(each.size());
  }
  return mean;
}

// One pass or both, a sequence each; adds the mean bytes of a rank's sends.
tl::expected<std::vector<PassTimes>, std::string> run_passes(CaseSetup& setup, const StrategyEntry& entry, double& sent,
                                                             bool& several) {
  std::vector<PassTimes> times;
  const std::vector<std::shared_ptr<const Batch>> all = setup.batches;
  for (const std::shared_ptr<const Batch>& batch : all) {
    setup.batches = {batch};
    const EntryResult result = run_entry(setup, entry, TraceMode::kNone);
    if (!result.summary) return tl::unexpected(result.not_applicable);
    times.push_back(times_of(*result.summary));
    sent += (result.summary->intra_node.mean + result.summary->inter_node.mean) / static_cast<double>(all.size());
    several = several || result.summary->inter_node.max > 0;
  }
  setup.batches = all;
  return times;
}

// The wider residual of two kinds.
double wider(double a, double b) { return std::max(std::abs(a), std::abs(b)); }

void set_residuals(PublishedRun& run, const CaseSetup& setup, double sent, bool several) {
  const KernelModel& kernels = setup.kernels;
  using K = KernelKind;
  run.attention_low =
      wider(wider(kernels.residual_low(K::kAttentionForwardDense), kernels.residual_low(K::kAttentionForwardRagged)),
            wider(kernels.residual_low(K::kAttentionBackwardDense), kernels.residual_low(K::kAttentionBackwardRagged)));
  run.attention_high = wider(
      wider(kernels.residual_high(K::kAttentionForwardDense), kernels.residual_high(K::kAttentionForwardRagged)),
      wider(kernels.residual_high(K::kAttentionBackwardDense), kernels.residual_high(K::kAttentionBackwardRagged)));
  const ResidualNodes nodes = residual_nodes(setup.cluster.topology(), several);
  run.communication_width = shipped_nccl_residuals().of(nodes, sent);
}

struct Interval {
  double value = 0, low = 0, high = 0;
};

Interval around(double value, double below, double above) {
  return {value, value * std::max(0.0, 1 - below), value * (1 + above)};
}

Interval seconds_of(const PassTimes& times) { return {times.step, times.low, times.high}; }

Interval backward_of(const PassTimes& both, const PassTimes& forward) {
  const double value = both.step - forward.step;
  return {value, value * both.low / both.step, value * both.high / both.step};
}

Interval part_of(const PublishedRun& run, Q quantity) {
  const double forward = run.forward.attention;
  switch (quantity) {
    case Q::kTotalMs:
      return seconds_of(run.both);
    case Q::kForwardMs:
      return seconds_of(run.forward);
    case Q::kBackwardMs:
      return backward_of(run.both, run.forward);
    case Q::kAttentionForwardMs:
      return around(forward, run.attention_low, run.attention_high);
    case Q::kAttentionBackwardMs:
      return around(run.both.attention - forward, run.attention_low, run.attention_high);
    case Q::kGatherMs:
      return around(run.forward.communication, run.communication_width, run.communication_width);
    case Q::kScatterMs:
      return around(run.both.communication - run.forward.communication, run.communication_width,
                    run.communication_width);
    case Q::kCopiesMs:
      return {run.both.copies, std::max(0.0, run.both.copies - run.both.copies_below),
              run.both.copies + run.both.copies_above};
    default:
      break;
  }
  LH_ASSERT(false, "quantity {} is no time", static_cast<int>(quantity));
  return {};
}

Interval scaled(const Interval& seconds, double by) {
  return {seconds.value * by, seconds.low * by, seconds.high * by};
}

// `amount` over the time: low where the time is high.
Interval rate(double amount, const Interval& seconds) {
  return {amount / seconds.value, amount / seconds.high, amount / seconds.low};
}

Interval ratio(const Interval& over, const Interval& of) {
  const double low = over.low / of.low;
  const double high = over.high / of.high;
  const double value = over.value / of.value;
  return {value, std::min({low, high, value}), std::max({low, high, value})};
}

// TFLOP/s a GPU of each sequence, their mean. Backward passes count 2.5 times the FLOPs.
Interval mean_tflops(const PublishedRun& run, bool backward) {
  Interval mean;
  const auto sequences = static_cast<double>(run.forward_flops.size());
  for (std::size_t i = 0; i < run.forward_flops.size(); ++i) {
    const double flops = run.forward_flops[i] / static_cast<double>(run.gpus) / 1e12;
    const PassTimes& forward = run.forward_each[i];
    const Interval one =
        backward ? rate(2.5 * flops, backward_of(run.both_each[i], forward)) : rate(flops, seconds_of(forward));
    mean.value += one.value / sequences;
    mean.low += one.low / sequences;
    mean.high += one.high / sequences;
  }
  return mean;
}

Interval predicted(const PublishedNumber& number, const PublishedRun& run, const PublishedRun* over) {
  switch (number.quantity) {
    case Q::kSpeedup:
      return ratio(seconds_of(over->both), seconds_of(run.both));
    case Q::kSpeedupForward:
      return ratio(seconds_of(over->forward), seconds_of(run.forward));
    case Q::kPerSecond:
      return rate(1, seconds_of(run.both));
    case Q::kPerSecondForward:
      return rate(1, seconds_of(run.forward));
    case Q::kTflopsForward:
      return mean_tflops(run, false);
    case Q::kTflopsBackward:
      return mean_tflops(run, true);
    default:
      return scaled(part_of(run, number.quantity), 1e3);
  }
}

using RunKey = std::tuple<int, std::string, std::string>;  // study, case, strategy

const StrategyEntry& entry_of(const StudyCase& study_case, const std::string& label) {
  const auto at = std::find_if(study_case.strategies.begin(), study_case.strategies.end(),
                               [&](const StrategyEntry& entry) { return entry.label == label; });
  LH_ASSERT(at != study_case.strategies.end(), "a row was read with the unknown strategy {}", label);
  return *at;
}

tl::expected<PublishedRun, std::string> run_of(const PublishedFigures& figures, const RunKey& key) {
  const auto& [study_index, case_name, label] = key;
  const Study& study = figures.studies[static_cast<std::size_t>(study_index)];
  const auto at = std::find_if(study.cases.begin(), study.cases.end(),
                               [&, name = case_name](const StudyCase& one) { return one.name == name; });
  LH_ASSERT(at != study.cases.end(), "a row was read with the unknown case {}", case_name);
  return run_published(*at, entry_of(*at, label), study.file);
}

using Outcome = tl::expected<PublishedRun, std::string>;

// Takes jobs one by one; the first exception stops everybody and is thrown again.
void run_all(const PublishedFigures& figures, std::map<RunKey, std::optional<Outcome>>& runs, int threads,
             const std::function<void(std::size_t, std::size_t)>& progress) {
  std::vector<std::pair<const RunKey, std::optional<Outcome>>*> jobs;
  for (auto& run : runs) jobs.push_back(&run);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      try {
        jobs[i]->second = run_of(figures, jobs[i]->first);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = jobs.size();
        return;
      }
      const std::lock_guard lock(mutex);
      if (progress) progress(++done, jobs.size());
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

PassTimes with_input_gradients(PassTimes times, const InputGradients& gradients) {
  times.step += gradients.seconds;
  times.low += gradients.low;
  times.high += gradients.high;
  times.copies += gradients.seconds;
  times.copies_below += gradients.seconds - gradients.low;
  times.copies_above += gradients.high - gradients.seconds;
  return times;
}

}  // namespace

InputGradients input_gradients(const KernelModel& kernels, const ModelShape& model, std::int64_t tokens,
                               std::int64_t ranks) {
  constexpr std::int64_t kBytes = 2;  // bf16
  InputGradients sum;
  const auto add = [&](EagerKernel kind, std::int64_t bytes) {
    const std::optional<Estimate> known = kernels.eager(to_string(kind), Bytes{bytes});
    const Estimate of = known ? *known : kernels.elementwise(Bytes{bytes});
    sum.seconds += of.seconds;
    sum.low += of.low;
    sum.high += of.high;
  };
  for (const std::int64_t width : {model.q_width(), model.kv_width(), model.kv_width()}) {
    const std::int64_t whole = tokens * width * kBytes;
    add(EagerKernel::kZeros, whole - whole / ranks);
    add(EagerKernel::kJoinedSlices, 2 * whole);  // read and written
    add(EagerKernel::kAddedSlice, 3 * whole);    // two read, one written
  }
  return sum;
}

tl::expected<PublishedRun, std::string> run_published(const StudyCase& study_case, const StrategyEntry& entry,
                                                      const std::string& file) {
  PublishedRun run;
  run.gpus = study_case.gpus;
  StudyCase one_pass = study_case;
  one_pass.training.backward = false;
  double sent = 0;
  bool several = false;
  CaseSetup forward = setup_of(one_pass, entry, file);
  auto forward_times = run_passes(forward, entry, sent, several);
  if (!forward_times) return tl::unexpected(forward_times.error());
  run.forward_each = std::move(*forward_times);
  run.forward = mean_of(run.forward_each);
  set_residuals(run, forward, sent, several);
  CaseSetup both = setup_of(study_case, entry, file);
  double ignored = 0;
  auto both_times = run_passes(both, entry, ignored, several);
  if (!both_times) return tl::unexpected(both_times.error());
  run.both_each = std::move(*both_times);
  run.both = mean_of(run.both_each);
  std::int64_t tokens = 0;
  for (const std::shared_ptr<const Batch>& batch : forward.batches) {
    run.forward_flops.push_back(4 * static_cast<double>(study_case.model.q_width() * study_case.model.layers) *
                                static_cast<double>(batch_pairs(*batch)));
    tokens += batch->tokens();
  }
  run.input_gradients = input_gradients(both.kernels, study_case.model,
                                        tokens / static_cast<std::int64_t>(forward.batches.size()), study_case.gpus);
  return run;
}

PublishedRun as_timed(PublishedRun run, PublishedInputs inputs) {
  if (inputs != PublishedInputs::kWhole) return run;
  run.both = with_input_gradients(run.both, run.input_gradients);
  for (PassTimes& one : run.both_each) one = with_input_gradients(one, run.input_gradients);
  return run;
}

PublishedPrediction predict(const PublishedNumber& number, const PublishedRun& run, const PublishedRun* over) {
  LH_ASSERT(is_speedup(number.quantity) == (over != nullptr), "a baseline belongs to speed-ups");
  const Interval interval = predicted(number, run, over);
  PublishedPrediction out;
  out.predicted = interval.value;
  out.low = interval.low;
  out.high = interval.high;
  out.error = interval.value / number.published - 1;
  return out;
}

std::vector<PublishedPrediction> predict_published(const PublishedFigures& figures, int threads,
                                                   const std::function<void(std::size_t, std::size_t)>& progress) {
  std::map<RunKey, std::optional<Outcome>> runs;
  for (const PublishedNumber& number : figures.numbers) {
    if (number.study < 0) continue;
    runs[{number.study, number.case_name, number.strategy}] = std::nullopt;
    if (!number.over.empty()) runs[{number.study, number.case_name, number.over}] = std::nullopt;
  }
  run_all(figures, runs, threads, progress);
  std::vector<PublishedPrediction> out;
  for (const PublishedNumber& number : figures.numbers) {
    PublishedPrediction& one = out.emplace_back();
    if (number.study < 0) continue;
    const Outcome& run = *runs.at({number.study, number.case_name, number.strategy});
    const Outcome* over = number.over.empty() ? nullptr : &*runs.at({number.study, number.case_name, number.over});
    if (!run || (over != nullptr && !*over)) {
      one.refused = !run ? run.error() : over->error();
      continue;
    }
    const PublishedInputs inputs = figures.tables[number.table].inputs;
    const PublishedRun timed = as_timed(*run, inputs);
    if (over == nullptr) {
      one = predict(number, timed, nullptr);
      continue;
    }
    const PublishedRun baseline = as_timed(**over, inputs);
    one = predict(number, timed, &baseline);
  }
  return out;
}

}  // namespace longhaul
