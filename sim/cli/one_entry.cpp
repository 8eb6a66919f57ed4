#include "sim/cli/one_entry.h"

#include <fmt/format.h>

#include "sim/study/entry_run.h"

namespace longhaul {

void add_entry_options(CLI::App& command, EntryOptions& options, const std::string& example) {
  command.add_option("STUDY", options.study, "A shipped study's name or a file")->required();
  command.add_option("--strategy", options.strategy, "Label of one strategy of the study")->required();
  command.add_option("--case", options.case_name, "The case, where several have that label");
  add_global_options(command, options.global, example);
}

Expected<std::unique_ptr<StudyEntry>> read_entry(const EntryOptions& options) {
  Expected<Study> study = read_study(options.study, study_options(options.global.seed));
  if (!study) return tl::unexpected(study.error());
  auto result = std::make_unique<StudyEntry>(StudyEntry{std::move(*study), {}});
  const Expected<FoundEntry> found = find_entry(result->study, options.strategy, options.case_name);
  if (!found) return tl::unexpected(found.error());
  result->found = *found;
  return result;
}

tl::expected<Degrees, std::string> chosen_degrees(const CaseSetup& setup, const StrategyEntry& entry) {
  if (!entry.layout.best) return entry_degrees(setup, entry);
  const EntryResult result = run_entry(setup, entry, TraceMode::kNone);
  if (!result.not_applicable.empty()) return tl::unexpected(result.not_applicable);
  return result.degrees;
}

int not_applicable(const StrategyEntry& entry, const std::string& why) {
  return wrong_input({{entry.file, entry.path, fmt::format("{} is not applicable: {}", entry.label, why), "", ""}});
}

}  // namespace longhaul
