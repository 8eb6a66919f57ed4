// longhaul simulate: one strategy in depth.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "reports/results_table.h"
#include "reports/study_traces.h"
#include "sim/cli/compare_table.h"
#include "sim/cli/critical_path_output.h"
#include "sim/cli/one_entry.h"
#include "sim/cli/output_folder.h"
#include "sim/cli/trace_files.h"
#include "sim/core/invariant.h"
#include "sim/study/results_json.h"

namespace longhaul {
namespace {

struct SimulateArguments {
  EntryOptions entry;
  std::string out;
  bool trace = false;
};

struct LabelTime {
  Time time;
  std::int64_t count = 0;
};

// Compute-stream time by op of the rank that ends last, from its records.
std::string ops_text(const EntryResult& entry) {
  std::map<std::pair<Pass, std::string>, LabelTime> labels;
  Time sum;
  for (const OpRecord& record : entry.trace->timeline.ops) {
    if (record.rank != entry.trace->ranks.front() || record.stream != kComputeStream) continue;
    LabelTime& of = labels[{record.pass, std::string(record.label)}];
    of.time += record.end - record.start;
    ++of.count;
    sum += record.end - record.start;
  }
  std::vector<std::pair<std::pair<Pass, std::string>, LabelTime>> sorted(labels.begin(), labels.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.time > b.second.time; });
  std::string text = fmt::format("\n  ops of rank {}              pass        time ms   share %     calls\n",
                                 entry.trace->ranks.front());
  constexpr std::size_t kShown = 20;
  for (std::size_t i = 0; i < std::min(sorted.size(), kShown); ++i) {
    const auto& [key, of] = sorted[i];
    text += fmt::format("  {:<26} {:<10} {:>10.1f} {:>9.1f} {:>9}\n", key.second, to_string(key.first), of.time.ms(),
                        100 * of.time.seconds() / sum.seconds(), of.count);
  }
  if (sorted.size() > kShown) text += fmt::format("  ... and {} more\n", sorted.size() - kShown);
  return text;
}

std::string memory_text(const StepSummary& summary) {
  std::string text = fmt::format("\n  memory at the peak, rank {}        GB\n", summary.peak_rank);
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const std::int64_t bytes = summary.peak_categories[static_cast<std::size_t>(i)];
    if (bytes == 0) continue;
    text +=
        fmt::format("  {:<28} {:>8.2f}\n", to_string(static_cast<MemoryCategory>(i)), static_cast<double>(bytes) / 1e9);
  }
  return text;
}

std::string compute_text(const StepSummary& summary) {
  return fmt::format("\n  compute of rank {}: attention {:.1f} ms, GEMM {:.1f} ms, memory-bound {:.1f} ms\n",
                     summary.critical_rank, summary.compute.attention.ms(), summary.compute.gemm.ms(),
                     summary.compute.memory.ms());
}

// What --format json prints and result.json holds: the entry as in results.json, and its critical path.
std::string entry_text(const EntryResult& entry, const CaseResult& of, const std::optional<CriticalPath>& path) {
  Json json = entry_json(entry, of);
  json["critical_path"] = critical_path_json(*entry.trace->schedule, path);
  return results_text(json);
}

int simulate_entry(const SimulateArguments& options) {
  const Expected<std::unique_ptr<StudyEntry>> read = read_entry(options.entry);
  if (!read) return wrong_input(read.error());
  Study one = (*read)->study;
  one.cases = {*(*read)->found.study_case};
  // Without --out only a trace is written, to where compare writes.
  const bool writes = options.trace || !options.out.empty();
  const std::string folder = options.out.empty() ? default_folder(one) : options.out;
  if (writes) probe_output_folder(folder);
  RunOptions run;
  run.threads = options.entry.global.threads;
  run.trace = options.trace ? TraceMode::kAll : TraceMode::kCritical;
  run.labels = {options.entry.strategy};
  const Expected<StudyResult> result = run_study(one, run);
  if (!result) return wrong_input(result.error());
  const CaseResult& of = result->cases.front();
  const auto found = std::find_if(of.entries.begin(), of.entries.end(),
                                  [&](const EntryResult& entry) { return entry.label == options.entry.strategy; });
  const EntryResult& entry = *found;
  if (!entry.not_applicable.empty()) return not_applicable(*(*read)->found.entry, entry.not_applicable);

  const Format format = options.entry.global.format();
  const Schedule& schedule = *entry.trace->schedule;
  std::optional<CriticalPath> path;
  if (format != Format::kCsv || writes) {
    path = trace_critical_path(schedule, of.setup->cluster, of.setup->kernels_of(*(*read)->found.entry));
    LH_ASSERT(!path || entry.summary->steps > 1 || path->step == entry.summary->step,
              "the critical path takes {} ps, the step {} ps", path->step.ps(), entry.summary->step.ps());
  }
  const std::string json = entry_text(entry, of, path);
  if (writes) {
    OutputFolder output(folder);
    output.add("result.json", json);
    if (options.trace) add_traces(output, "", study_traces(*result), true);
    output.commit();
  }
  if (format == Format::kJson) print(json);
  if (format == Format::kCsv) print(results_csv(results_json(one, *result)));
  if (format == Format::kTable) {
    print(compare_table(one, *result, results_json(one, *result)) + compute_text(*entry.summary) + ops_text(entry) +
          memory_text(*entry.summary) + critical_path_text(path, entry.summary->steps));
  }
  if (writes) say(options.entry.global, fmt::format("result: {}/result.json", folder));
  return entry.does_not_fit ? does_not_fit(entry) : kExitDone;
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
  auto options = std::make_shared<SimulateArguments>();
  CLI::App* command = app.add_subcommand("simulate", "Simulate one strategy of a study in depth");
  command->add_option("--out", options->out,
                      "Folder for result.json and the trace (with --trace: default results/<study name>)");
  command->add_flag("--trace", options->trace, "Record every rank; written beside result.json");
  add_entry_options(*command, options->entry, "longhaul simulate four-way-h200 --strategy flashcp --format json");
  command->callback([&action, options] { action = [options] { return simulate_entry(*options); }; });
}

}  // namespace longhaul
