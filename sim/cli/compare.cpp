// longhaul compare: every strategy of a study, the table, results.json, report and traces.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "reports/report.h"
#include "reports/results_table.h"
#include "reports/study_traces.h"
#include "sim/cli/command.h"
#include "sim/cli/compare_table.h"
#include "sim/cli/one_entry.h"
#include "sim/cli/progress.h"
#include "sim/cli/trace_files.h"
#include "sim/study/results_json.h"

namespace longhaul {
namespace {

struct CompareArguments {
  GlobalOptions global;
  std::string study;
  std::string out;
  std::vector<std::string> strategies;
  std::string trace;
};

std::string run_json(const CompareArguments& options, std::chrono::steady_clock::duration duration) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const Json run = {{"schema", "run/1"},
                    {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
                    {"host", host.data()},
                    {"duration_s", std::chrono::duration<double>(duration).count()},
                    {"threads", options.global.threads}};
  return run.dump(2) + "\n";
}

// Why no row is a winner, and what to look at.
std::string why_none(const StudyResult& result, const std::string& folder) {
  bool any_large = false;
  for (const CaseResult& one : result.cases) {
    any_large = any_large || std::any_of(one.entries.begin(), one.entries.end(), [](const EntryResult& entry) {
                  return !entry.hidden && entry.does_not_fit.has_value();
                });
  }
  if (any_large) return fmt::format("no strategy fits into memory; see does_not_fit in {}/results.json", folder);
  return fmt::format("no strategy is applicable to this study; see not_applicable in {}/results.json", folder);
}

int compare(const CompareArguments& options) {
  const auto start = std::chrono::steady_clock::now();
  const Expected<Study> study = read_study(options.study, study_options(options.global.seed));
  if (!study) return wrong_input(study.error());
  note_unused_seed(options.global, *study);
  const std::string folder = options.out.empty() ? default_folder(*study) : options.out;
  probe_output_folder(folder);
  Progress progress(options.global.quiet);
  RunOptions run;
  run.threads = options.global.threads;
  run.trace = options.trace == "all" ? TraceMode::kAll : TraceMode::kChosen;
  run.labels = options.strategies;
  run.progress = [&](std::size_t done, std::size_t of) { progress.show(done, of); };
  const Expected<StudyResult> result = run_study(*study, run);
  progress.clear();
  if (!result) return wrong_input(result.error());

  const Json json = results_json(*study, *result);
  const std::string results = results_text(json);
  const TraceBundle traces = study_traces(*result);
  OutputFolder output(folder);
  output.add("results.json", results);
  output.add("report.html", report_html(json, traces));
  add_traces(output, "traces/", traces, run.trace == TraceMode::kAll);
  output.add("run.json", run_json(options, std::chrono::steady_clock::now() - start));
  output.commit();

  switch (options.global.format()) {
    case Format::kJson:
      print(results);
      break;
    case Format::kCsv:
      print(results_csv(json));
      break;
    case Format::kTable:
      print(compare_table(*study, *result, json));
      break;
  }
  say(options.global, fmt::format("report: {0}/report.html, results: {0}/results.json", folder));
  return result->any_fits() ? kExitDone : cannot(why_none(*result, folder));
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  auto options = std::make_shared<CompareArguments>();
  CLI::App* command = app.add_subcommand("compare", "Simulate every strategy of a study and compare them");
  command->add_option("STUDY", options->study, "A shipped study's name or a file")->required();
  command->add_option("--out", options->out, "Folder for the results (default results/<study name>)");
  command->add_option("--strategy", options->strategies, "Only this label (repeat for more)");
  command->add_option("--trace", options->trace, "all: trace every rank and micro-batch")
      ->check(CLI::IsMember({"all"}));
  add_global_options(*command, options->global, "longhaul compare four-way-h200 --out results/first");
  command->callback([&action, options] { action = [options] { return compare(*options); }; });
}

}  // namespace longhaul
