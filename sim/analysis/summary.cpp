#include "sim/analysis/summary.h"

#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/workload/arithmetic.h"

namespace longhaul {
namespace {

Spread spread(const std::vector<RankTotals>& ranks, std::int64_t RankTotals::*bytes) {
  Spread result;
  result.min = ranks.front().*bytes;
  std::int64_t sum = 0;
  for (const RankTotals& rank : ranks) {
    result.min = std::min(result.min, rank.*bytes);
    result.max = std::max(result.max, rank.*bytes);
    sum += rank.*bytes;
  }
  result.mean = static_cast<double>(sum) / static_cast<double>(ranks.size());
  return result;
}

double max_over_mean(const std::vector<RankTotals>& ranks) {
  Time most, sum;
  for (const RankTotals& rank : ranks) {
    most = std::max(most, rank.busy());
    sum += rank.busy();
  }
  if (sum == Time::zero()) return 1;
  return most.seconds() * static_cast<double>(ranks.size()) / sum.seconds();
}

void find_peak(const std::vector<RankTotals>& ranks, StepSummary& summary) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].peak_bytes <= summary.peak_bytes) continue;
    summary.peak_bytes = ranks[rank].peak_bytes;
    summary.peak_rank = static_cast<std::int32_t>(rank);
    summary.peak_categories = ranks[rank].peak_categories;
  }
}

Time mean_time(const std::vector<StepSummary>& steps, Time StepSummary::*time) {
  Time sum;
  for (const StepSummary& step : steps) sum += step.*time;
  return Time::from_ps(sum.ps() / static_cast<std::int64_t>(steps.size()));
}

// Rounded down; what is left of the mean step goes to the largest part, so that the parts still sum.
TimeSplit mean_split(const std::vector<StepSummary>& steps, Time step) {
  TimeSplit mean;
  std::size_t largest = 0;
  for (std::size_t part = 0; part < mean.parts.size(); ++part) {
    Time sum;
    for (const StepSummary& one : steps) sum += one.split.parts[part];
    mean.parts[part] = Time::from_ps(sum.ps() / static_cast<std::int64_t>(steps.size()));
    if (mean.parts[part] > mean.parts[largest]) largest = part;
  }
  mean.parts[largest] += step - mean.sum();
  return mean;
}

// Rounded down; what is left of the mean compute goes to the largest part.
ComputeSplit mean_compute(const std::vector<StepSummary>& steps, Time compute) {
  ComputeSplit mean;
  Time* largest = &mean.attention;
  for (Time ComputeSplit::*part : {&ComputeSplit::attention, &ComputeSplit::gemm, &ComputeSplit::memory}) {
    Time sum;
    for (const StepSummary& one : steps) sum += one.compute.*part;
    mean.*part = Time::from_ps(sum.ps() / static_cast<std::int64_t>(steps.size()));
    if (mean.*part > *largest) largest = &(mean.*part);
  }
  *largest += compute - mean.attention - mean.gemm - mean.memory;
  return mean;
}

Spread mean_spread(const std::vector<StepSummary>& steps, Spread StepSummary::*member) {
  Spread result = steps.front().*member;
  double sum = 0;
  for (const StepSummary& step : steps) {
    result.min = std::min(result.min, (step.*member).min);
    result.max = std::max(result.max, (step.*member).max);
    sum += (step.*member).mean;
  }
  result.mean = sum / static_cast<double>(steps.size());
  return result;
}

Time percentile(const std::vector<StepSummary>& steps, std::size_t percent) {
  std::vector<Time> times;
  for (const StepSummary& step : steps) times.push_back(step.step);
  std::sort(times.begin(), times.end());
  const std::size_t rank = (percent * times.size() + 99) / 100;
  return times[std::max<std::size_t>(rank, 1) - 1];
}

ErrorWidths mean_widths(const std::vector<StepSummary>& steps) {
  ErrorWidths sum;
  for (const StepSummary& step : steps) sum += step.widths;
  sum *= 1 / static_cast<double>(steps.size());
  return sum;
}

}  // namespace

Flops counted_flops(const ModelShape& model, const Batch& batch, const Training& training) {
  Flops flops = model_flops(model, batch);
  const double tokens = static_cast<double>(batch.tokens());
  if (training.scope == Scope::kLayers) flops.value -= 3 * head_flops(model, 1).value * tokens;
  if (training.scope == Scope::kAttention) flops.value -= 3 * matmul_flops_per_token(model).value * tokens;
  if (!training.backward) flops.value /= 3;
  return flops;
}

StepSummary summarize(const Totals& totals, const Schedule& schedule, const Training& training, const Cluster& cluster,
                      const KernelModel& kernels) {
  LH_ASSERT(!totals.ranks.empty() && schedule.batch != nullptr, "a step without ranks or batch");
  StepSummary summary;
  const RankTotals& critical = totals.ranks[static_cast<std::size_t>(totals.critical_rank)];
  summary.step = summary.p10 = summary.p90 = totals.step;
  summary.critical_rank = totals.critical_rank;
  summary.split = split_time(critical);
  LH_ASSERT(summary.split.sum() == totals.step, "the parts sum to {} ps, the step takes {} ps",
            summary.split.sum().ps(), totals.step.ps());
  summary.compute = split_compute(critical);
  summary.bound_by = bound_by(critical, network_is_busiest(totals.link_bytes, cluster));
  summary.widths = error_widths(critical, kernels, collective_half_width(totals, cluster, shipped_nccl_residuals()));
  const Ends ends = interval(totals.step, summary.widths);
  summary.low = ends.low;
  summary.high = ends.high;
  summary.tokens = schedule.batch->tokens();
  const double gpu_seconds = totals.step.seconds() * static_cast<double>(totals.ranks.size());
  if (gpu_seconds > 0) {
    summary.tokens_per_second_per_gpu = static_cast<double>(schedule.batch->tokens()) / gpu_seconds;
    summary.mfu = counted_flops(schedule.model, *schedule.batch, training).value /
                  (gpu_seconds * kernels.device().bf16_dense.value);
  }
  summary.imbalance = max_over_mean(totals.ranks);
  find_peak(totals.ranks, summary);
  summary.intra_node = spread(totals.ranks, &RankTotals::sent_intra_node);
  summary.inter_node = spread(totals.ranks, &RankTotals::sent_inter_node);
  for (const RankTotals& rank : totals.ranks) {
    summary.ranks.push_back({rank.busy(), split_compute(rank).attention, split_time(rank), rank.peak_bytes,
                             rank.sent_intra_node, rank.sent_inter_node});
  }
  return summary;
}

StepSummary mean_of(const std::vector<StepSummary>& steps) {
  LH_ASSERT(!steps.empty(), "the mean of no steps");
  if (steps.size() == 1) return steps.front();
  const auto slowest =
      std::max_element(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  StepSummary mean = *slowest;
  mean.steps = static_cast<std::int64_t>(steps.size());
  mean.step = mean_time(steps, &StepSummary::step);
  mean.low = mean_time(steps, &StepSummary::low);
  mean.high = mean_time(steps, &StepSummary::high);
  mean.widths = mean_widths(steps);
  mean.split = mean_split(steps, mean.step);
  mean.compute = mean_compute(steps, mean.split[TimePart::kCompute]);
  mean.p10 = percentile(steps, 10);
  mean.p90 = percentile(steps, 90);
  mean.intra_node = mean_spread(steps, &StepSummary::intra_node);
  mean.inter_node = mean_spread(steps, &StepSummary::inter_node);
  // Rates over all steps: amounts over times, not the mean of rates.
  mean.tokens = 0;
  double tokens = 0, flops = 0, seconds = 0, imbalance = 0;
  for (const StepSummary& step : steps) {
    mean.tokens += step.tokens;
    tokens += step.tokens_per_second_per_gpu * step.step.seconds();
    flops += step.mfu * step.step.seconds();
    seconds += step.step.seconds();
    imbalance += step.imbalance;
    if (step.peak_bytes > mean.peak_bytes) {
      mean.peak_bytes = step.peak_bytes;
      mean.peak_rank = step.peak_rank;
      mean.peak_categories = step.peak_categories;
    }
  }
  mean.tokens_per_second_per_gpu = tokens / seconds;
  mean.mfu = flops / seconds;
  mean.imbalance = imbalance / static_cast<double>(steps.size());
  return mean;
}

bool is_faster(Time a, std::int64_t a_tokens, Time b, std::int64_t b_tokens) {
  if (a_tokens == b_tokens) return a < b;
  return a.seconds() * static_cast<double>(b_tokens) < b.seconds() * static_cast<double>(a_tokens);
}

MemoryCategory largest_category(const MemoryByCategory& categories) {
  const auto largest = std::max_element(categories.begin(), categories.end());
  return static_cast<MemoryCategory>(largest - categories.begin());
}

}  // namespace longhaul
