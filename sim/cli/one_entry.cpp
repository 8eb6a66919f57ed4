#include "sim/cli/one_entry.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/format.h"
#include "sim/cli/output_folder.h"

namespace longhaul {

void add_entry_options(CLI::App& command, EntryOptions& options, const std::string& example, bool all) {
  command.add_option("STUDY", options.study, "A shipped study's name or a file")->required();
  command
      .add_option(
          "--strategy", options.strategy,
          all ? "Label of one strategy of the study; without it, all of them" : "Label of one strategy of the study")
      ->required(!all);
  command.add_option("--case", options.case_name, "The case, where several have that label");
  add_global_options(command, options.global, example);
}

Expected<std::unique_ptr<StudyEntry>> read_entry(const EntryOptions& options) {
  Expected<Study> study = read_study(options.study, study_options(options.global.seed));
  if (!study) return tl::unexpected(study.error());
  note_unused_seed(options.global, *study);
  auto result = std::make_unique<StudyEntry>(StudyEntry{std::move(*study), {}});
  const Expected<FoundEntry> found = find_entry(result->study, options.strategy, options.case_name);
  if (!found) return tl::unexpected(found.error());
  result->found = *found;
  return result;
}

std::string default_folder(const Study& study) { return "results/" + plain_file_name(study.name); }

void note_unused_seed(const GlobalOptions& options, const Study& study) {
  const bool sampled = std::any_of(study.cases.begin(), study.cases.end(),
                                   [](const StudyCase& one) { return one.documents.lengths.has_value(); });
  if (options.seed && !sampled) {
    say(options, "longhaul: --seed has no effect: the documents of this study are given, not sampled");
  }
}

int not_applicable(const StrategyEntry& entry, const std::string& why) {
  return wrong_input({{entry.file, entry.path, fmt::format("{} is not applicable: {}", entry.label, why), "", ""}});
}

int does_not_fit(const EntryResult& entry) {
  const DoesNotFit& fault = *entry.does_not_fit;
  return cannot(plain_text(
      fmt::format("{} does not fit: rank {} needs {} of {}, most of it {}; {}", entry.label, fault.rank,
                  format_bytes(static_cast<double>(fault.needed_bytes)),
                  format_bytes(static_cast<double>(fault.limit_bytes)), to_string(fault.category),
                  fault.change.empty() ? "no simulated change fits: use more GPUs" : "fits with " + fault.change)));
}

int runs_and_fits(const StrategyEntry& entry, const EntryResult& simulated) {
  if (!simulated.not_applicable.empty()) return not_applicable(entry, simulated.not_applicable);
  return simulated.does_not_fit ? does_not_fit(simulated) : kExitDone;
}

}  // namespace longhaul
