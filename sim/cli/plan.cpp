// longhaul plan: the plan of one strategy, as JSON.
#include <memory>

#include "sim/cli/one_entry.h"
#include "sim/study/entry_run.h"

namespace longhaul {
namespace {

int plan(const EntryOptions& options) {
  if (options.global.format() == Format::kCsv) {
    return wrong_input({{"<command line>", "--format", "is \"csv\"", "\"json\": a plan is no table", ""}});
  }
  const Expected<std::unique_ptr<StudyEntry>> read = read_entry(options);
  if (!read) return wrong_input(read.error());
  const StrategyEntry& entry = *(*read)->found.entry;
  const Expected<CaseSetup> setup = set_up_case(*(*read)->found.study_case, (*read)->study.file);
  if (!setup) return wrong_input(setup.error());
  const Errors errors = entry_errors(*setup, entry);
  if (!errors.empty()) return wrong_input(errors);
  const EntryResult simulated = run_entry(*setup, entry, TraceMode::kNone);
  if (const int code = runs_and_fits(entry, simulated); code != kExitDone) return code;
  const Degrees& degrees = simulated.degrees;
  const Planned planned = plan_entry(*setup, entry, degrees, 0);
  if (!planned) return not_applicable(entry, planned.error());
  Json json = {
      {"schema", "plan/1"}, {"name", entry.label}, {"case", setup->study_case->name}, {"strategy", entry.name}};
  json["layout"] = {{"pp", degrees.pp}, {"cp", degrees.cp}, {"sp", degrees.sp}, {"dp", degrees.dp}};
  json["plan"] = planned->plan ? planned->plan() : Json();
  print(json.dump(2) + "\n");
  return kExitDone;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<EntryOptions>();
  CLI::App* command = app.add_subcommand("plan", "Print the plan of one strategy as JSON");
  add_entry_options(*command, *options, "longhaul plan four-way-h200 --strategy flashcp");
  command->callback([&action, options] { action = [options] { return plan(*options); }; });
}

}  // namespace longhaul
