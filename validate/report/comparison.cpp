#include "validate/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/schedule/op_kind_name.h"
#include "validate/report/idle_time.h"
#include "validate/report/op_pairs.h"
#include "validate/report/row_sum.h"

namespace longhaul {
namespace {

// Rows in the order in which their names are first met.
class RowTable {
 public:
  RowTable(std::size_t repeats, double collective_half_width)
      : repeats_(repeats), collective_half_width_(collective_half_width) {}
  void add(const std::string& name, const PairedOp& pair) {
    const auto [found, fresh] = index_.try_emplace(name, sums_.size());
    if (fresh) {
      names_.push_back(name);
      sums_.emplace_back(repeats_, collective_half_width_);
    }
    sums_[found->second].add(pair);
  }
  std::vector<ComparedRow> rows(double kernel_seconds) const {
    std::vector<ComparedRow> rows;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      rows.push_back(sums_[i].row(names_[i]));
      if (kernel_seconds > 0) rows.back().share = rows.back().measured / kernel_seconds;
    }
    return rows;
  }

 private:
  std::size_t repeats_;
  double collective_half_width_;
  std::map<std::string, std::size_t> index_;
  std::vector<std::string> names_;
  std::vector<RowSum> sums_;
};

struct SiteSum {
  ComparedSite site;
  RowSum sum;
};

std::vector<double> seconds_of(const std::vector<std::int64_t>& ps) {
  std::vector<double> seconds;
  for (const std::int64_t one : ps) seconds.push_back(static_cast<double>(one) * 1e-12);
  return seconds;
}

void set_measured(ComparedRow& row, const std::vector<double>& values) {
  const MedianInterval median = median_interval(values, kMeasuredConfidence);
  row.measured = median.median;
  row.measured_low = median.low;
  row.measured_high = median.high;
  row.bounded = median.bounded;
}

std::vector<ComparedSite> compare_sites(const std::vector<PairedOp>& pairs, std::size_t repeats, double half_width,
                                        double kernel_seconds) {
  std::map<std::string, std::size_t> index;
  std::vector<SiteSum> sums;
  for (const PairedOp& pair : pairs) {
    const PredictedOp& op = *pair.predicted;
    const std::string key =
        fmt::format("{}\n{}\n{}\n{}", op_kind_name(op.kind), to_string(op.pass), op.label, op.shape);
    const auto [found, fresh] = index.try_emplace(key, sums.size());
    if (fresh) {
      const bool transfer = op.kind == OpKind::kCollective;
      sums.push_back({{op.label,
                       op_kind_name(op.kind),
                       to_string(op.pass),
                       op.shape,
                       op.shape_class,
                       transfer ? "collective" : basis_name(op.basis),
                       "",
                       {},
                       {}},
                      RowSum(repeats, half_width)});
    }
    SiteSum& of = sums[found->second];
    of.sum.add(pair);
    if (of.site.kernel.empty() && pair.measured != nullptr) of.site.kernel = pair.measured->kernel;
    if (of.site.ranks.empty() || of.site.ranks.back() != op.rank) of.site.ranks.push_back(op.rank);
  }
  std::vector<ComparedSite> sites;
  for (SiteSum& of : sums) {
    of.site.row = of.sum.row(of.site.label);
    if (kernel_seconds > 0) of.site.row.share = of.site.row.measured / kernel_seconds;
    sites.push_back(std::move(of.site));
  }
  return sites;
}

// Those of all ranks; clocks that no device told are left out.
std::int32_t clock_of_steps(const RunRecord& record) {
  std::vector<std::int32_t> clocks;
  for (const RankRun& run : record.rank_runs) {
    std::copy_if(run.clock_mhz.begin(), run.clock_mhz.end(), std::back_inserter(clocks),
                 [](auto mhz) { return mhz > 0; });
  }
  if (clocks.empty()) return 0;
  const auto middle = clocks.begin() + static_cast<std::ptrdiff_t>(clocks.size() / 2);
  std::nth_element(clocks.begin(), middle, clocks.end());
  return *middle;
}

// A rank whose kernels run alone: the undisturbed step of virtual ranks, without events between the ops.
std::vector<ComparedRow> compare_alone(const Prediction& prediction, const RunRecord& record,
                                       const std::vector<ComparedRow>& compute) {
  std::vector<ComparedRow> rows;
  for (const RankRun& run : record.rank_runs) {
    const auto rank = static_cast<std::size_t>(run.rank);
    if (run.step_ps.empty() || rank >= prediction.rank_alone.size()) continue;
    ComparedRow row;
    row.name = fmt::format("rank {}", run.rank);
    const bool is_virtual = record.placement == RankPlacement::kVirtual;
    row.predicted = (is_virtual ? prediction.rank_alone[rank] : prediction.totals.ranks[rank].end).seconds();
    // As wide as the sum of the kernels that it is made of.
    const auto of = std::find_if(compute.begin(), compute.end(), [&](const auto& one) { return one.name == row.name; });
    const bool known = of != compute.end() && of->predicted > 0;
    row.predicted_low = known ? row.predicted * of->predicted_low / of->predicted : row.predicted;
    row.predicted_high = known ? row.predicted * of->predicted_high / of->predicted : row.predicted;
    set_measured(row, seconds_of(run.step_ps));
    rows.push_back(row);
  }
  return rows;
}

// Predicted: the block that the tensors need, and what is planned beside it (op scratch, row lists, workspaces of
// libraries, buffers of communicators where ranks are real). Measured: what the device was seen to hold; of a virtual
// rank, whose device holds others too, what was allocated.
std::vector<ComparedRow> compare_memory(const Prediction& prediction, const RunRecord& record) {
  std::vector<ComparedRow> rows;
  for (const RankRun& run : record.rank_runs) {
    const auto rank = static_cast<std::size_t>(run.rank);
    if (rank >= prediction.totals.ranks.size()) continue;
    ComparedRow row;
    row.name = fmt::format("rank {}", run.rank);
    row.predicted = static_cast<double>(prediction.block_bytes[rank] + run.scratch_bytes);
    if (record.placement == RankPlacement::kReal && run.device_peak_bytes > 0) {
      row.predicted += static_cast<double>(prediction.communicator_bytes[rank]);
    }
    row.predicted_low = row.predicted_high = row.predicted;
    const std::int64_t held = run.arena_bytes + run.scratch_bytes;
    row.measured = static_cast<double>(run.device_peak_bytes > 0 ? run.device_peak_bytes : held);
    row.measured_low = row.measured_high = row.measured;
    row.bounded = true;
    rows.push_back(row);
  }
  if (record.device_peak_bytes == 0 || rows.empty()) return rows;
  ComparedRow whole;
  whole.name = "the device, all ranks";
  for (const ComparedRow& row : rows) whole.predicted += row.predicted;
  whole.predicted_low = whole.predicted_high = whole.predicted;
  whole.measured = whole.measured_low = whole.measured_high = static_cast<double>(record.device_peak_bytes);
  whole.bounded = true;
  rows.push_back(whole);
  return rows;
}

Time exposed(const Totals& totals) {
  return totals.ranks[static_cast<std::size_t>(totals.critical_rank)].exposed_communication;
}

void compare_composed(const Prediction& prediction, const ComposedStep& composed, Comparison& result) {
  ComparedRow& step = result.step;
  step.source = result.exposed_communication.source = Source::kComposed;
  step.predicted = prediction.totals.step.seconds();
  step.predicted_low = prediction.step_low.seconds();
  step.predicted_high = prediction.step_high.seconds();
  step.measured = composed.totals.step.seconds();
  step.measured_low = std::min(composed.low.step, composed.totals.step).seconds();
  step.measured_high = std::max(composed.high.step, composed.totals.step).seconds();
  step.bounded = result.repeats > 5;  // the least count that bounds a median at 95 %
  ComparedRow& waits = result.exposed_communication;
  waits.predicted = exposed(prediction.totals).seconds();
  waits.predicted_low = waits.predicted * (1 - prediction.collective_half_width);
  waits.predicted_high = waits.predicted * (1 + prediction.collective_half_width);
  waits.measured = exposed(composed.totals).seconds();
  waits.measured_low = std::min({exposed(composed.low), exposed(composed.totals), exposed(composed.high)}).seconds();
  waits.measured_high = std::max({exposed(composed.low), exposed(composed.totals), exposed(composed.high)}).seconds();
  waits.bounded = step.bounded;
}

void compare_real(const Prediction& prediction, const RunRecord& record, Comparison& result) {
  ComparedRow& step = result.step;
  step.predicted = prediction.totals.step.seconds();
  step.predicted_low = prediction.step_low.seconds();
  step.predicted_high = prediction.step_high.seconds();
  if (record.step_ps.empty()) {
    step.source = result.exposed_communication.source = Source::kModel;
  } else {
    set_measured(step, seconds_of(record.step_ps));
  }
  ComparedRow& waits = result.exposed_communication;
  const auto rank = static_cast<std::size_t>(prediction.totals.critical_rank);
  const RankTotals& totals = prediction.totals.ranks[rank];
  waits.predicted = (totals.exposed_communication + totals.imbalance + totals.bubble).seconds();
  waits.predicted_low = waits.predicted * (1 - prediction.collective_half_width);
  waits.predicted_high = waits.predicted * (1 + prediction.collective_half_width);
  const std::vector<double> idle = idle_in_communication(record, prediction.totals.critical_rank);
  if (!idle.empty()) set_measured(waits, idle);
}

// Kernel time of all ranks by repeat.
std::vector<double> kernel_seconds(const std::vector<PairedOp>& pairs, std::size_t repeats) {
  std::vector<double> seconds(repeats, 0.0);
  for (const PairedOp& pair : pairs) {
    if (pair.predicted->kind == OpKind::kCollective || pair.seconds.size() != repeats) continue;
    for (std::size_t r = 0; r < repeats; ++r) seconds[r] += pair.seconds[r];
  }
  return seconds;
}

// Of the rank whose kernels are predicted to take longest. Kernels of one kind err together.
RankKernels slowest_rank_of(const Prediction& prediction) {
  std::vector<RankKernels> ranks(prediction.totals.ranks.size());
  for (const PredictedOp& op : prediction.ops) {
    if (op.kind == OpKind::kCollective) continue;
    RankKernels& of = ranks[static_cast<std::size_t>(op.rank)];
    const auto kind = static_cast<std::size_t>(op.kernel);
    of.time += op.time;
    of.widths.below[kind] += (op.time - op.low).seconds();
    of.widths.above[kind] += (op.high - op.time).seconds();
  }
  const auto slowest =
      std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  return slowest == ranks.end() ? RankKernels{} : *slowest;
}

void add_remarks(const std::vector<PairedOp>& pairs, const std::vector<double>& kernels, const ComposedStep* composed,
                 Comparison& result) {
  if (result.placement == RankPlacement::kVirtual) {
    result.remarks.push_back(fmt::format(
        "{} virtual ranks on one device: the kernels of every rank were run and timed, one rank after another; "
        "communication was not measured. Transfers, waits and the slow-down of kernels beside transfers are the "
        "model's, so the step and its exposed communication are composed of measured kernels and modelled transfers.",
        result.ranks));
  }
  if (composed != nullptr && composed->modelled_kernels > 0) {
    result.remarks.push_back(
        fmt::format("{} kernel launches were not measured and keep their predicted time in the "
                    "composed step.",
                    composed->modelled_kernels));
  }
  const auto unmeasured = std::count_if(pairs.begin(), pairs.end(), [](const PairedOp& pair) {
    return pair.predicted->kind != OpKind::kCollective && pair.seconds.empty();
  });
  if (unmeasured > 0) {
    result.remarks.push_back(
        fmt::format("{} of {} ops were left out of the run and of every sum below.", unmeasured, pairs.size()));
  }
  constexpr double kToldDrift = 0.01;
  const double drift = drift_of(kernels);
  if (std::abs(drift) > kToldDrift) {
    result.remarks.push_back(
        fmt::format("Kernel times drifted by {:+.1f} % from the first third of the repeats to the "
                    "last: warm up longer, or fix the clocks.",
                    100 * drift));
  }
  constexpr int kBounding = 6;
  if (result.repeats < kBounding) {
    result.remarks.push_back(
        fmt::format("{} repeats do not bound a median at 95 %: the measured intervals are the "
                    "least and the largest value.",
                    result.repeats));
  }
}

// Kernels of real ranks were timed in whole steps, beside communication: they are compared as simulated, beside the
// same. Intervals keep their relative widths.
Prediction beside_communication(Prediction prediction) {
  for (PredictedOp& op : prediction.ops) {
    if (op.kind == OpKind::kCollective || op.time == Time::zero()) continue;
    const double factor = (op.end - op.start).seconds() / op.time.seconds();
    op.time = op.end - op.start;
    op.low = Time::from_seconds(op.low.seconds() * factor);
    op.high = Time::from_seconds(op.high.seconds() * factor);
  }
  return prediction;
}

Comparison compare_ops(const Prediction& prediction, const RunRecord& record, const ComposedStep* composed) {
  Comparison result;
  result.strategy = record.identity.strategy;
  result.identity = record.identity;
  result.hardware = record.hardware;
  result.step_clock_mhz = clock_of_steps(record);
  result.placement = record.placement;
  result.ranks = record.ranks;
  result.repeats = record.repeats;
  result.confidence = kMeasuredConfidence;
  result.numerics = record.numerics;
  result.exclusions = record.exclusions;

  const auto repeats = static_cast<std::size_t>(record.repeats);
  const double half_width = prediction.collective_half_width;
  const std::vector<PairedOp> pairs = pair_ops(prediction, record);
  const std::vector<double> kernels = kernel_seconds(pairs, repeats);
  const double all = median_interval(kernels, kMeasuredConfidence).median;
  RowTable kinds(repeats, half_width), ranks(repeats, half_width), streams(repeats, half_width),
      collectives(repeats, half_width);
  for (const PairedOp& pair : pairs) {
    const PredictedOp& op = *pair.predicted;
    streams.add(prediction.streams[static_cast<std::size_t>(op.stream)], pair);
    if (op.kind == OpKind::kCollective) {
      collectives.add(fmt::format("{} {}", op.label, to_string(op.pass)), pair);
    } else {
      kinds.add(fmt::format("{} {}", op_kind_name(op.kind), to_string(op.pass)), pair);
      ranks.add(fmt::format("rank {}", op.rank), pair);
    }
  }
  result.kinds = kinds.rows(all);
  result.rank_compute = ranks.rows(all);
  result.streams = streams.rows(all);
  result.collectives = collectives.rows(all);
  result.slowest_rank = slowest_rank_of(prediction);
  result.rank_alone = compare_alone(prediction, record, result.rank_compute);
  result.peak_memory = compare_memory(prediction, record);
  result.step.name = "step";
  result.exposed_communication.name =
      record.placement == RankPlacement::kReal ? "exposed communication and waits" : "exposed communication";
  if (composed != nullptr) {
    compare_composed(prediction, *composed, result);
  } else {
    compare_real(prediction, record, result);
  }
  result.sites = compare_sites(pairs, repeats, half_width, all);
  result.worst = find_worst(result.sites);
  add_remarks(pairs, kernels, composed, result);
  return result;
}

}  // namespace

const char* to_string(Source source) {
  switch (source) {
    case Source::kMeasured:
      return "measured";
    case Source::kComposed:
      return "composed";
    case Source::kModel:
      return "model";
  }
  return "";
}

bool Comparison::numerics_pass() const {
  return std::all_of(numerics.begin(), numerics.end(), [](const NumericsResult& one) { return one.pass; });
}

Comparison compare_run(const Prediction& prediction, const RunRecord& record, const ComposedStep* composed) {
  LH_ASSERT(record.repeats > 0, "a comparison with a run of {} repeats", record.repeats);
  if (record.placement == RankPlacement::kVirtual) return compare_ops(prediction, record, composed);
  return compare_ops(beside_communication(prediction), record, composed);
}

}  // namespace longhaul
