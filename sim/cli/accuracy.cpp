// longhaul accuracy: the error of the models against the measured tables in validate/data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "sim/cli/command.h"
#include "sim/cli/progress.h"
#include "sim/core/data_files.h"
#include "validate/accuracy/collectives.h"
#include "validate/accuracy/context_parallel.h"
#include "validate/accuracy/kernels.h"
#include "validate/report/runs_table.h"

namespace longhaul {
namespace {

const std::vector<std::string> kBuilt = {"collectives", "context-parallel", "kernels", "runs"};
// Of the contract, and not there yet.
const std::vector<std::string> kNotBuilt = {"pipeline", "throughput"};

struct AccuracyArguments {
  GlobalOptions global;
  std::string table;
  bool strict = false;
  std::string runs;  // the folder of kept runs; empty: the one that ships
  std::string rows;  // measured calls; empty: the tables that ship
  std::string device = "h200";
};

Errors table_faults(const std::string& table) {
  if (table.empty() || std::find(kBuilt.begin(), kBuilt.end(), table) != kBuilt.end()) return {};
  const std::string expected = fmt::format("one of {}", fmt::join(kBuilt, ", "));
  if (std::find(kNotBuilt.begin(), kNotBuilt.end(), table) != kNotBuilt.end()) {
    return {{"<command line>", "--table", fmt::format("{} is not built yet", table), expected, ""}};
  }
  return {
      {"<command line>", "--table", fmt::format("unknown table \"{}\"", table), expected, nearest_name(table, kBuilt)}};
}

Expected<std::string> collectives(const AccuracyArguments& options) {
  const Expected<std::vector<CollectiveTable>> tables = read_all_collective_tables(data_directory());
  if (!tables) return tl::unexpected(tables.error());
  const int threads = std::max(1, options.global.threads);
  say(options.global, fmt::format("{} tables, each predicted by a fit to the others", tables->size()));
  const CollectiveAccuracy plain = summarise(*tables, leave_one_table_out(*tables, LeaveOut::kTable, threads));
  std::optional<CollectiveAccuracy> strict;
  if (options.strict) strict = summarise(*tables, leave_one_table_out(*tables, LeaveOut::kTwins, threads));
  const CollectiveAccuracy* twins = strict ? &*strict : nullptr;
  if (options.global.format() == Format::kJson) return accuracy_json(plain, twins);
  if (options.global.format() == Format::kCsv) return accuracy_csv(plain, twins);
  return accuracy_table(plain, twins);
}

Expected<std::string> context_parallel(const AccuracyArguments& options) {
  const Expected<PublishedFigures> figures = read_published(data_directory() + "/validate/data/published");
  if (!figures) return tl::unexpected(figures.error());
  Progress progress(options.global.quiet);
  const auto predictions = predict_published(*figures, std::max(1, options.global.threads),
                                             [&](std::size_t done, std::size_t of) { progress.show(done, of); });
  progress.clear();
  const PublishedAccuracy judged = judge(*figures, predictions);
  if (options.global.format() == Format::kJson) return published_json(*figures, predictions, judged);
  if (options.global.format() == Format::kCsv) return published_csv(*figures, predictions, judged);
  return published_table(*figures, predictions, judged);
}

Expected<std::string> kernels(const AccuracyArguments& options) {
  const Expected<KernelAccuracy> accuracy = options.rows.empty()
                                                ? kernel_accuracy(data_directory())
                                                : rows_accuracy(data_directory(), options.device, options.rows);
  if (!accuracy) return tl::unexpected(accuracy.error());
  if (options.global.format() == Format::kJson) return kernels_json(*accuracy);
  if (options.global.format() == Format::kCsv) return kernels_csv(*accuracy);
  return kernels_table(*accuracy, options.rows);
}

Expected<std::string> runs(const AccuracyArguments& options) {
  const std::string folder = options.runs.empty() ? data_directory() + "/validate/data/runs" : options.runs;
  const Expected<RunsAccuracy> accuracy = judge_runs(folder);
  if (!accuracy) return tl::unexpected(accuracy.error());
  if (options.global.format() == Format::kJson) return runs_json(*accuracy);
  if (options.global.format() == Format::kCsv) return runs_csv(*accuracy);
  return runs_text(*accuracy);
}

// All that are built: tables and CSV with an empty line between them, JSON as a list.
int accuracy(const AccuracyArguments& options) {
  const Errors faults = table_faults(options.table);
  if (!faults.empty()) return wrong_input(faults);
  std::vector<std::string> texts;
  Errors errors;
  for (const std::string& name : kBuilt) {
    if (!options.table.empty() && options.table != name) continue;
    Expected<std::string> text = name == "collectives" ? collectives(options)
                                 : name == "kernels"   ? kernels(options)
                                 : name == "runs"      ? runs(options)
                                                       : context_parallel(options);
    if (text) {
      texts.push_back(std::move(*text));
    } else {
      append(errors, text.error());
    }
  }
  if (!errors.empty()) return wrong_input(errors);
  if (options.table.empty() && options.global.format() == Format::kJson) {
    print(fmt::format("[\n{}]\n", fmt::join(texts, ",\n")));
  } else {
    print(fmt::format("{}", fmt::join(texts, "\n")));
  }
  return kExitDone;
}

}  // namespace

void add_accuracy(CLI::App& app, Action& action) {
  auto options = std::make_shared<AccuracyArguments>();
  CLI::App* command = app.add_subcommand("accuracy", "Prediction error against the measured tables");
  command->add_option("--table", options->table,
                      "Which tables: collectives, context-parallel, kernels, runs; without it all that are built");
  command->add_flag("--strict", options->strict, "Also leave out all tables of the same kind of machine at once");
  command->add_option("--runs", options->runs, "Folder of kept runs of longhaul validate (default validate/data/runs)")
      ->check(CLI::ExistingDirectory);
  CLI::Option* rows =
      command
          ->add_option("--rows", options->rows,
                       "With --table kernels: rows of longhaul calibrate, judged by the shipped calibration")
          ->check(CLI::ExistingFile);
  command->add_option("--device", options->device, "Device of --rows")->capture_default_str()->needs(rows);
  add_global_options(*command, options->global, "longhaul accuracy --table context-parallel --threads 2");
  command->callback([&action, options] { action = [options] { return accuracy(*options); }; });
}

}  // namespace longhaul
