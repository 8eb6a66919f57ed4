// The arguments of the commands that look at one strategy of a study.
#pragma once

#include <memory>
#include <string>

#include "sim/cli/command.h"
#include "sim/study/entry_run.h"
#include "sim/study/find_entry.h"
#include "sim/study/setup.h"

namespace longhaul {

struct EntryOptions {
  GlobalOptions global;
  std::string study;
  std::string strategy;
  std::string case_name;
};

// STUDY, --strategy, --case and the global options. `all`: without --strategy every entry is meant.
void add_entry_options(CLI::App& command, EntryOptions& options, const std::string& example, bool all = false);

// A study and one entry of it; `found` points into `study`.
struct StudyEntry {
  Study study;
  FoundEntry found;
};
// Reads the study and finds the entry; then also entry_errors. Not to be moved once read: it is built in place.
Expected<std::unique_ptr<StudyEntry>> read_entry(const EntryOptions& options);

// results/<study name>, the name as plain_file_name writes it.
std::string default_folder(const Study& study);

// Says that --seed has no effect where no case samples its documents.
void note_unused_seed(const GlobalOptions& options, const Study& study);

// "LABEL is not applicable: WHY" as an error of the entry, for exit code 2.
int not_applicable(const StrategyEntry& entry, const std::string& why);

// "LABEL does not fit: ... ; REMEDY" on one line; returns exit code 3.
int does_not_fit(const EntryResult& entry);

// 0 if the simulated entry runs and fits; else says why not and returns 2 or 3.
int runs_and_fits(const StrategyEntry& entry, const EntryResult& simulated);

}  // namespace longhaul
