// `longhaul pipeline` as a library call: one schedule alone, its makespan, bubble rate, peaks and a text diagram.
//
// Units: microseconds in and out; inside, integer picoseconds. F, B and W are per stage and micro-batch, and the equal
// slices of seq1f1b divide them; with DPP's list of slice counts they are per slice (cli.md "Row formats").
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/strategies/pipeline/alone.h"
#include "sim/strategies/pipeline/order.h"

namespace longhaul {

struct PipelineRequest {
  std::string schedule;  // 1f1b, seq1f1b or dpp
  std::int64_t stages = 0;
  // dpp: left out, or the sum of `slices`, or the number of sequences.
  std::optional<std::int64_t> microbatches;
  double forward_us = 0;
  double backward_input_us = 0;
  double backward_weight_us = 0;
  double p2p_us = 0;
  std::vector<std::int64_t> slices;   // seq1f1b: one count; dpp: one count a sequence; 1f1b: none, or 1
  std::int64_t chunks_per_stage = 1;  // layer groups a stage: 1 for every schedule that exists
};

struct PipelineReport {
  PipelineRequest request;           // as run: dpp's slices in descending order, microbatches filled in
  std::int64_t units = 0;            // M of the bubble rate: micro-batches; dpp: slices
  std::int64_t slices_per_unit = 1;  // seq1f1b: s, else 1
  double makespan_us = 0;
  double bubble_rate = 0;          // (makespan - M(F+B+W)) / makespan
  std::vector<double> peak_units;  // [stage] in activations of one micro-batch; dpp: in slices
  PipelineOrder order;
  PipelineRun run;
};

// The names that `schedule` may have, in the order in which they are listed.
const std::vector<std::string>& pipeline_schedule_names();

// Every fault at once, paths are the option names ("--stages"), file "<command line>".
// Microseconds of an integer number of picoseconds, correctly rounded: 57'000'000 ps print as 57.
inline double exact_us(Time time) { return static_cast<double>(time.ps()) / 1e6; }

Expected<PipelineReport> report_pipeline(PipelineRequest request);

// {"schedule", "stages", "microbatches", "slices", "forward_us", ..., "makespan_us", "bubble_rate",
//  "peak_units": [stage], "busy_us": [stage], "ops": [stage][{"pass", "microbatch", "slice", "start_us", "end_us"}]}
nlohmann::ordered_json pipeline_report_json(const PipelineReport& report);

// One line a stage, time to the right in `columns` columns: digits are forwards, letters backwards (chunk number
// modulo 10), dots idle; a legend line below. A column shows what runs in its middle.
std::string pipeline_diagram(const PipelineReport& report, std::int32_t columns = 100);

}  // namespace longhaul
