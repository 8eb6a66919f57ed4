// One simulated step (or the mean over several) in the terms of the results: what `results.json` and the table show.
//
// Units: Time in integer picoseconds, bytes. Means over steps are exact in the sense that the parts sum to the mean
// step.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/analysis/breakdown.h"
#include "sim/analysis/uncertainty.h"
#include "sim/workload/batch.h"
#include "sim/workload/training.h"

namespace longhaul {

struct Spread {
  std::int64_t min = 0;
  double mean = 0;
  std::int64_t max = 0;
};

struct RankSummary {
  Time compute;    // of the compute stream's kernels as they take alone, all passes
  Time attention;  // of these those of attention
  TimeSplit split;
  std::int64_t peak_bytes = 0;
  std::int64_t sent_intra_node = 0;
  std::int64_t sent_inter_node = 0;
};

struct StepSummary {
  Time step;
  Time low, high;
  ErrorWidths widths;    // what low and high are made of
  TimeSplit split;       // of the rank that ends last
  ComputeSplit compute;  // of the same
  std::string bound_by;
  std::int32_t critical_rank = 0;
  std::int64_t tokens = 0;  // trained, of all `steps` together
  double tokens_per_second_per_gpu = 0;
  double mfu = 0;
  double imbalance = 1;  // max over mean of the ranks' compute
  std::int64_t peak_bytes = 0;
  std::int32_t peak_rank = 0;  // the first with the largest peak
  MemoryByCategory peak_categories{};
  Spread intra_node, inter_node;  // bytes sent per rank
  std::vector<RankSummary> ranks;
  // Several steps: percentiles of the step time by nearest rank (the ceil(p N)-th smallest).
  std::int64_t steps = 1;
  Time p10, p90;
};

// FLOPs that MFU counts for `scope`: the formula of architecture.md for whole steps; for kLayers without the head's,
// for kAttention those of attention alone; a third of it where there is no backward pass.
Flops counted_flops(const ModelShape& model, const Batch& batch, const Training& training);

StepSummary summarize(const Totals& totals, const Schedule& schedule, const Training& training, const Cluster& cluster,
                      const KernelModel& kernels);

// Mean of the steps of one run, in order. Times, ends, parts and rates are means; imbalance and MFU follow from means;
// memory and bytes are the largest of all steps (min and max over steps for bytes); ranks and what bounds it are those
// of the slowest step. Asserts at least one.
StepSummary mean_of(const std::vector<StepSummary>& steps);

// Trains a token in less time: `a` of `a_tokens` against `b` of `b_tokens`. The shorter step where both train as many;
// delayed packing of documents trains fewer tokens than were loaded while some wait.
bool is_faster(Time a, std::int64_t a_tokens, Time b, std::int64_t b_tokens);

// The category that takes the most at the peak.
MemoryCategory largest_category(const MemoryByCategory& categories);

}  // namespace longhaul
