// Published figures of context parallelism against the simulator: a prediction a number, and the gates of each table.
//
// Every packed sequence of a case's documents is simulated as a step of its own and times are means over them; the
// ratio of two times is the ratio of their means. TFLOP/s are the mean of the sequences' own, as MagiAttention's
// benchmark has them (exps/dist_attn/run_benchmark.py). Intervals are those of steps (sim/analysis/breakdown.h): parts
// take the relative residual of their kind (attention, collectives) or the sum of their kernels' own intervals
// (copies), differences and ratios both terms at the same end. Error = predicted / published - 1. Ignores: the spread
// that published means hide.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/cost/estimate.h"
#include "validate/accuracy/published.h"

namespace longhaul {

// Seconds of one sequence, of the rank that ends last. attention + communication + copies = step.
struct PassTimes {
  double step = 0, low = 0, high = 0;
  double attention = 0;  // of the rank with most of it, and what runs longer beside others
  double communication = 0;
  double copies = 0;  // the rest: memory-bound kernels, the host, waits for other ranks' of them
  double copies_below = 0, copies_above = 0;  // ends of their interval from there
};

// Seconds that autograd takes after the backward pass where a rank's q, k and v are chunks of whole tensors
// (PublishedInputs::kWhole): each of the three gradients is joined with zeros of all other rows (the backward function
// of torch.chunk) and added to the gradient that the whole tensor has from the call before. Rows x widths of the whole
// sequence, bf16; eager kernels. The same on every rank, so it adds to a step.
struct InputGradients {
  double seconds = 0, low = 0, high = 0;
};
InputGradients input_gradients(const KernelModel& kernels, const ModelShape& model, std::int64_t tokens,
                               std::int64_t ranks);

struct PublishedRun {
  PassTimes both, forward;  // means
  // Of each sequence: both vectors are as long.
  std::vector<PassTimes> both_each, forward_each;
  std::vector<double> forward_flops;  // of all GPUs
  std::int64_t gpus = 0;
  InputGradients input_gradients;
  // Relative: part of the time by which nine in ten calls lie below and above.
  double attention_low = 0, attention_high = 0;
  double communication_width = 0;
};

// `passes` is that of `forward` or of both passes. Error: why the strategy cannot run the case.
tl::expected<PublishedRun, std::string> run_published(const StudyCase& study_case, const StrategyEntry& entry,
                                                      const std::string& file);

// The run with what a table's program timed beside it.
PublishedRun as_timed(PublishedRun run, PublishedInputs inputs);

struct PublishedPrediction {
  std::optional<double> predicted;  // none: not reproduced
  double low = 0, high = 0;         // low <= predicted <= high
  double error = 0;
  std::string refused;  // the strategy's reason not to run
};

// `over` only for speed-ups.
PublishedPrediction predict(const PublishedNumber& number, const PublishedRun& run, const PublishedRun* over);

// Of every number, in order. `threads` >= 1; the outcome does not depend on it. Throws LimitError where a study's
// cluster or kernels cannot be set up.
std::vector<PublishedPrediction> predict_published(const PublishedFigures& figures, int threads,
                                                   const std::function<void(std::size_t, std::size_t)>& progress = {});

struct GateLine {
  std::string table;
  std::string what;    // "each part within 15 %"
  double value = 0;    // numbers that hold, or a median in %
  double limit = 0;    // at least so many, or at most so many %
  std::size_t of = 0;  // numbers counted
  bool is_median = false;
  bool met() const { return is_median ? value <= limit : value >= limit; }
};

struct PublishedSummary {
  std::string table;
  std::size_t numbers = 0, reproduced = 0;
  double median = 0, p90 = 0, bias = 0;  // percent; of |error|, of it, and of the error with its sign
};

struct PublishedAccuracy {
  std::vector<PublishedSummary> summaries;  // by table
  std::vector<GateLine> gates;              // in the order of the tables
};
PublishedAccuracy judge(const PublishedFigures& figures, const std::vector<PublishedPrediction>& predictions);

// A table for people, one JSON value, or CSV lines: a number or a gate each (of a gate `published` is the limit and
// `predicted` what was reached).
std::string published_table(const PublishedFigures& figures, const std::vector<PublishedPrediction>& predictions,
                            const PublishedAccuracy& accuracy);
std::string published_json(const PublishedFigures& figures, const std::vector<PublishedPrediction>& predictions,
                           const PublishedAccuracy& accuracy);
std::string published_csv(const PublishedFigures& figures, const std::vector<PublishedPrediction>& predictions,
                          const PublishedAccuracy& accuracy);

}  // namespace longhaul
