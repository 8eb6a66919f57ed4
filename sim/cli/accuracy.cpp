// longhaul accuracy: the error of the models against the measured tables in validate/data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "sim/cli/command.h"
#include "sim/core/data_files.h"
#include "validate/accuracy/collectives.h"

namespace longhaul {
namespace {

const std::vector<std::string> kBuilt = {"collectives"};
// Of the contract, and not there yet.
const std::vector<std::string> kNotBuilt = {"kernels", "context-parallel", "pipeline", "throughput"};

struct Options {
  GlobalOptions global;
  std::string table;
  bool strict = false;
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

int accuracy(const Options& options) {
  const Errors faults = table_faults(options.table);
  if (!faults.empty()) return wrong_input(faults);
  const Expected<std::vector<CollectiveTable>> tables = read_all_collective_tables(data_directory());
  if (!tables) return wrong_input(tables.error());
  const int threads = std::max(1, options.global.threads);
  say(options.global, fmt::format("{} tables, each predicted by a fit to the others", tables->size()));
  const CollectiveAccuracy plain = summarise(*tables, leave_one_table_out(*tables, LeaveOut::kTable, threads));
  std::optional<CollectiveAccuracy> strict;
  if (options.strict) strict = summarise(*tables, leave_one_table_out(*tables, LeaveOut::kTwins, threads));
  const CollectiveAccuracy* twins = strict ? &*strict : nullptr;
  switch (options.global.format()) {
    case Format::kJson:
      print(accuracy_json(plain, twins));
      break;
    case Format::kCsv:
      print(accuracy_csv(plain, twins));
      break;
    case Format::kTable:
      print(accuracy_table(plain, twins));
      break;
  }
  return kExitDone;
}

}  // namespace

void add_accuracy(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("accuracy", "Prediction error against the measured tables");
  command->add_option("--table", options->table, "Which tables: collectives; without it all that are built");
  command->add_flag("--strict", options->strict, "Also leave out all tables of the same kind of machine at once");
  add_global_options(*command, options->global, "longhaul accuracy --table collectives --threads 2");
  command->callback([&action, options] { action = [options] { return accuracy(*options); }; });
}

}  // namespace longhaul
