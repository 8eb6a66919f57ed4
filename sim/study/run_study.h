// Runs a whole study: every entry of every case, with its baselines, on any number of threads.
//
// Results do not depend on the number of threads. At most `threads` entries are in memory at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/study/entry_run.h"

namespace longhaul {

struct RunOptions {
  int threads = 1;
  TraceMode trace = TraceMode::kNone;
  std::vector<std::string> labels;  // only these entries; the baselines run along, hidden. Empty: all
  // Called after each entry, from any thread but never from two at once.
  std::function<void(std::size_t done, std::size_t of)> progress;
};

struct CaseResult {
  std::string name;
  std::string baseline;              // label
  std::vector<EntryResult> entries;  // in the order of the study, then hidden baselines
  int winner = -1;  // index of the shown entry that trains a token in the least time, of those that fit; -1: none fits
  std::shared_ptr<const CaseSetup> setup;
};

struct StudyResult {
  std::vector<CaseResult> cases;
  bool any_fits() const;
};

// Errors: entries whose layouts or batches cannot be filled, labels that the study does not have; nothing has run then.
// `study` must outlive the result.
Expected<StudyResult> run_study(const Study& study, const RunOptions& options);

}  // namespace longhaul
