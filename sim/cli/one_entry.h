// The arguments of the commands that look at one strategy of a study.
#pragma once

#include <string>

#include "sim/cli/command.h"
#include "sim/study/find_entry.h"
#include "sim/study/setup.h"

namespace longhaul {

struct EntryOptions {
  GlobalOptions global;
  std::string study;
  std::string strategy;
  std::string case_name;
};

// STUDY, --strategy, --case and the global options.
void add_entry_options(CLI::App& command, EntryOptions& options, const std::string& example);

// A study and one entry of it; `found` points into `study`.
struct StudyEntry {
  Study study;
  FoundEntry found;
};
// Reads the study and finds the entry; then also entry_errors. Not to be moved once read: it is built in place.
Expected<std::unique_ptr<StudyEntry>> read_entry(const EntryOptions& options);

// The degrees of an entry; for "best" the layout that a simulation takes. The error is why it is not applicable.
tl::expected<Degrees, std::string> chosen_degrees(const CaseSetup& setup, const StrategyEntry& entry);

// "LABEL is not applicable: WHY" as an error of the entry, for exit code 2.
int not_applicable(const StrategyEntry& entry, const std::string& why);

}  // namespace longhaul
