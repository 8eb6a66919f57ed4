// What `longhaul validate` compares: the study that runs, and the run itself, from a device or from a file.
#pragma once

#include <string>

#include "sim/cli/one_entry.h"
#include "sim/cli/validate_job.h"
#include "sim/cli/validate_numerics.h"
#include "validate/report/kept_run.h"
#include "validate/report/prepared_run.h"

namespace longhaul {

struct ValidateOptions {
  EntryOptions entry;
  bool reduced = false;
  std::string device = "cuda";  // or "host"
  int virtual_ranks = 0;        // 0: one rank a GPU where there are enough
  std::string record;           // a stored run in place of a device
  int repeats = 0;              // 0: 20, on the host 3
  int warmups = 3;
  ReferenceChoice reference = ReferenceChoice::kAuto;
  Plant plant;             // a slow-down put in on purpose
  JobLead* job = nullptr;  // several processes run the schedule; this is the first
};

// The study of a kept run, which must be that of the command line by name, case and strategy; a bare record's is the
// command line's own.
Expected<Prepared> prepare_recorded(const StudyEntry& asked, const KeptRun& run, const ValidateOptions& options);

// Reduces where asked for, plans, executes, and says what ran. Throws LimitError where it does not fit or apply to this
// machine; a run that a fault ended is returned with the fault in its record.
struct FreshRun {
  Prepared prepared;
  KeptRun run;
};
Expected<FreshRun> run_on_this_machine(const StudyEntry& asked, const ValidateOptions& options, ReferenceCache& cache);

// What `--plan` says of one entry: what the run would cost on the study's own device, from the prediction.
struct RunCost {
  double step_seconds = 0;        // kernels of all ranks one after another, where ranks are virtual
  double run_seconds = 0;         // all repeats and warm-ups
  double numerics_seconds = 0;    // a guess: reading tensors and comparing them on the host
  std::int64_t device_bytes = 0;  // all ranks on one device, where they are virtual; else the fullest
  bool double_precision = false;  // numbers against double precision as a whole
};
Expected<RunCost> cost_of_run(const StudyEntry& asked, const ValidateOptions& options);

}  // namespace longhaul
