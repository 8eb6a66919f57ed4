#include "sim/strategies/pipeline/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace longhaul {
namespace {

constexpr std::int64_t kMaxStages = 4096;
constexpr std::int64_t kMaxUnits = 1'000'000;  // micro-batches, slices of one, sequences
constexpr std::int64_t kMaxOps = 10'000'000;   // 2 x stages x chunks: what an op list may hold
constexpr double kMaxMakespanUs = 9e12;        // int64 picoseconds reach 9.2e12 us

void add_error(Errors& errors, std::string option, std::string message, std::string expected,
               std::string nearest = "") {
  errors.push_back({"<command line>", std::move(option), std::move(message), std::move(expected), std::move(nearest)});
}

// "3,1,1". Not fmt::join or Boost's join: g++ 12 warns about the inside of both.
template <class T>
std::string listed(const std::vector<T>& items, const char* separator) {
  std::string text;
  for (const T& item : items) text += fmt::format("{}{}", text.empty() ? "" : separator, item);
  return text;
}

void check_count(Errors& errors, const char* option, std::int64_t value, std::int64_t high) {
  if (value >= 1 && value <= high) return;
  add_error(errors, option, fmt::format("is {}", value), fmt::format("an integer from 1 to {}", high));
}

void check_time(Errors& errors, const char* option, double us) {
  if (std::isfinite(us) && us >= 0 && us <= 1e9) return;
  add_error(errors, option, fmt::format("is {}", us), "microseconds from 0 to 1e9");
}

void check_numbers(const PipelineRequest& request, Errors& errors) {
  check_count(errors, "--stages", request.stages, kMaxStages);
  if (request.microbatches) check_count(errors, "--microbatches", *request.microbatches, kMaxUnits);
  check_time(errors, "--forward-us", request.forward_us);
  check_time(errors, "--backward-input-us", request.backward_input_us);
  check_time(errors, "--backward-weight-us", request.backward_weight_us);
  check_time(errors, "--p2p-us", request.p2p_us);
  for (const std::int64_t slices : request.slices) check_count(errors, "--slices", slices, kMaxUnits);
  if (request.chunks_per_stage != 1) {
    add_error(errors, "--chunks-per-stage", fmt::format("is {}", request.chunks_per_stage),
              "1: 1f1b, seq1f1b and dpp hold one group of layers a stage");
  }
  if (request.forward_us == 0 && request.backward_input_us == 0 && request.backward_weight_us == 0) {
    add_error(errors, "--forward-us", "is 0, and so are --backward-input-us and --backward-weight-us",
              "at least one time above 0");
  }
}

void check_dpp_slices(const PipelineRequest& request, Errors& errors) {
  if (request.slices.empty()) {
    add_error(errors, "--slices", "is missing", "for dpp, one slice count a sequence, like 3,1,1");
    return;
  }
  const std::int64_t sum = std::accumulate(request.slices.begin(), request.slices.end(), std::int64_t{0});
  const auto sequences = static_cast<std::int64_t>(request.slices.size());
  if (request.microbatches && *request.microbatches != sum && *request.microbatches != sequences) {
    add_error(errors, "--microbatches", fmt::format("is {}", *request.microbatches),
              fmt::format("{}, the sum of --slices (or {}, its sequences; or nothing)", sum, sequences));
  }
}

void check_slices(const PipelineRequest& request, Errors& errors) {
  if (request.schedule == "dpp") return check_dpp_slices(request, errors);
  if (!request.microbatches) add_error(errors, "--microbatches", "is missing", "the number of micro-batches");
  if (request.schedule == "1f1b" && !request.slices.empty() && request.slices != std::vector<std::int64_t>{1}) {
    add_error(errors, "--slices", fmt::format("is {}", listed(request.slices, ",")),
              "1: 1f1b does not slice micro-batches; seq1f1b does");
  }
  if (request.schedule == "seq1f1b" && request.slices.size() > 1) {
    add_error(errors, "--slices", fmt::format("is {}", listed(request.slices, ",")),
              "one count: seq1f1b cuts every micro-batch alike; dpp takes one count a sequence");
  }
}

// Only for requests whose single values are in range.
void check_size(const PipelineRequest& request, Errors& errors) {
  std::int64_t chunks = 0;
  double units = 0;  // of F + B + W
  if (request.schedule == "dpp") {
    chunks = std::accumulate(request.slices.begin(), request.slices.end(), std::int64_t{0});
    units = static_cast<double>(chunks);
  } else {
    chunks = *request.microbatches * (request.slices.empty() ? 1 : request.slices[0]);
    units = static_cast<double>(*request.microbatches);
  }
  if (chunks > kMaxOps / 2 / request.stages) {
    add_error(errors, "--stages", fmt::format("{} x {} chunks is too large", request.stages, chunks),
              fmt::format("at most {} operations", kMaxOps));
  }
  const double unit_us = request.forward_us + request.backward_input_us + request.backward_weight_us;
  // No chain of dependencies is longer than all operations and transfers one after another.
  const double longest =
      static_cast<double>(request.stages) * (units * unit_us + 2 * static_cast<double>(chunks) * request.p2p_us);
  if (longest > kMaxMakespanUs) {
    add_error(errors, "--forward-us", fmt::format("the pipeline could take {:.3g} us", longest),
              fmt::format("at most {:.0e} us in all", kMaxMakespanUs));
  }
}

Errors check_request(const PipelineRequest& request) {
  Errors errors;
  const std::vector<std::string>& names = pipeline_schedule_names();
  const bool known = std::find(names.begin(), names.end(), request.schedule) != names.end();
  if (!known) {
    add_error(errors, "--schedule", fmt::format("is \"{}\"", request.schedule),
              fmt::format("one of {}", listed(names, ", ")), nearest_name(request.schedule, names));
  }
  check_numbers(request, errors);
  if (known) check_slices(request, errors);
  if (errors.empty()) check_size(request, errors);
  return errors;
}

std::int64_t rounded_ps(double us) { return Time::from_us(us).ps(); }

// Durations of the chunks of one sequence or micro-batch: `whole` divided so that the parts sum to it exactly.
std::vector<Time> divided(std::int64_t whole_ps, std::int64_t parts) {
  std::vector<Time> times;
  const std::int64_t quotient = whole_ps / parts;
  const std::int64_t remainder = whole_ps % parts;
  for (std::int64_t part = 0; part < parts; ++part) times.push_back(Time::from_ps(quotient + (part < remainder)));
  return times;
}

void build_order(PipelineReport& report) {
  const PipelineRequest& request = report.request;
  const auto stages = static_cast<std::int32_t>(request.stages);
  if (request.schedule == "dpp") {
    std::vector<std::int32_t> counts;
    for (const std::int64_t slices : request.slices) counts.push_back(static_cast<std::int32_t>(slices));
    report.order = sliced_1f1b_order(stages, make_streams({counts}));
    report.units = report.order.chunks;
  } else {
    report.units = *request.microbatches;
    report.slices_per_unit = request.slices[0];
    report.order = seq1f1b_order(stages, static_cast<std::int32_t>(report.units),
                                 static_cast<std::int32_t>(report.slices_per_unit));
  }
}

// Durations of all chunks of one stage, of a pass that takes `us` a unit.
std::vector<Time> pass_times(const PipelineReport& report, std::int64_t unit_ps) {
  const std::vector<Time> unit = divided(unit_ps, report.slices_per_unit);
  std::vector<Time> times;
  times.reserve(static_cast<std::size_t>(report.order.chunks));
  for (std::int64_t i = 0; i < report.units; ++i) times.insert(times.end(), unit.begin(), unit.end());
  return times;
}

void fill_defaults(PipelineRequest& request) {
  if (request.schedule == "dpp") {
    std::stable_sort(request.slices.begin(), request.slices.end(), std::greater<>());
    request.microbatches = std::accumulate(request.slices.begin(), request.slices.end(), std::int64_t{0});
  } else if (request.slices.empty()) {
    request.slices = {1};
  }
}

}  // namespace

const std::vector<std::string>& pipeline_schedule_names() {
  static const std::vector<std::string> names{"1f1b", "seq1f1b", "dpp"};
  return names;
}

Expected<PipelineReport> report_pipeline(PipelineRequest request) {
  Errors errors = check_request(request);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  fill_defaults(request);
  PipelineReport report;
  report.request = std::move(request);
  build_order(report);
  const std::int64_t forward_ps = rounded_ps(report.request.forward_us);
  const std::int64_t backward_ps =
      rounded_ps(report.request.backward_input_us) + rounded_ps(report.request.backward_weight_us);
  const PipelineTimes times = PipelineTimes::same_on_all_stages(
      static_cast<std::int32_t>(report.request.stages), pass_times(report, forward_ps), pass_times(report, backward_ps),
      Time::from_ps(rounded_ps(report.request.p2p_us)));
  report.run = run_pipeline_alone(report.order, times);
  report.makespan_us = exact_us(report.run.makespan);
  const std::int64_t makespan_ps = report.run.makespan.ps();
  const std::int64_t work_ps = report.units * (forward_ps + backward_ps);
  if (makespan_ps > 0) {  // times below half a picosecond round to nothing
    report.bubble_rate = static_cast<double>(makespan_ps - work_ps) / static_cast<double>(makespan_ps);
  }
  for (const std::int32_t live : peak_live_chunks(report.order)) {
    report.peak_units.push_back(static_cast<double>(live) / static_cast<double>(report.slices_per_unit));
  }
  return report;
}

}  // namespace longhaul
