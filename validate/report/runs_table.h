// `longhaul accuracy --table runs`: every kept run, predicted again by this version, and how far off it is.
//
// Only runs that a device measured count; emulated and synthetic ones are named and left out, and so are runs of
// schedules that this version no longer makes. Targets: validate/report/run_targets.h. Errors are predicted / measured
// - 1.
#pragma once

#include <string>
#include <vector>

#include "validate/report/comparison.h"
#include "validate/report/kept_run.h"
#include "validate/report/orders.h"

namespace longhaul {

struct JudgedRun {
  std::string file;      // name in the folder
  std::string left_out;  // why it does not count; empty: it does
  std::string layout;
  std::int64_t tokens = 0;  // of a step, noisy and clean ones
  Comparison comparison;    // of one that counts
};

struct RunsAccuracy {
  std::string folder;
  std::vector<JudgedRun> runs;  // by file name
  Orders orders;
};

// A kept run beside what this version predicts for it. The error is why it cannot be predicted.
tl::expected<JudgedRun, std::string> judge_run(const KeptRun& run, const std::string& file);

// All *.json of `folder`; a folder that is not there holds none. Errors: files that are no kept runs, all of them; a
// folder that cannot be listed.
Expected<RunsAccuracy> judge_runs(const std::string& folder);

std::string runs_text(const RunsAccuracy& accuracy);
std::string runs_json(const RunsAccuracy& accuracy);
std::string runs_csv(const RunsAccuracy& accuracy);  // one line a run and op kind

}  // namespace longhaul
