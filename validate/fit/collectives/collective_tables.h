// The measured tables of collectives (validate/data/collectives), ready for the fit: each row with its machine.
//
// Rows below 256 bytes are left out: they time the launch alone. `gtc_slide_peak_busbw.csv` holds plateaus, no times.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/network/nccl/rows.h"
#include "sim/network/nccl/times.h"

namespace longhaul {

struct CollectiveMeasurement {
  CollectiveRow row;
  NcclMachine machine;
  double measured_us = 0;
  NcclPlan plan;              // of the row's call
  bool harness_only = false;  // only the costs of the harness are fitted to it
};

// What the benchmark of the row would print.
NcclTime predict(const NcclConstants& constants, const CollectiveMeasurement& measured);

struct CollectiveTable {
  std::string name;        // file name without ending
  std::string not_fitted;  // why the constants are not fitted to it ("# not fitted: ..."); empty: they are
  // Why only the costs of the harness are fitted to it ("# fitted to the harness alone: ..."); empty: all are, or none.
  std::string harness_only;
  std::string hard;       // why it is predicted badly ("# hard: ..."), if it is
  bool held_out = false;  // our own measurement, kept to check with: listed by itself, never fitted
  std::vector<CollectiveMeasurement> rows;

  bool fitted() const { return not_fitted.empty() && harness_only.empty(); }  // all constants are, to it
};

// All tables of `directory`, by name. Errors of all files at once: those of the rows, machines that do not ship, a row
// without a measured time, a folder without tables.
Expected<std::vector<CollectiveTable>> read_collective_tables(const std::string& directory,
                                                              const std::string& data_directory);
// Our own measurements of collectives of equal parts (validate/data/h200x2): replayed graphs below 1 MiB, where the
// host of the other table's machine takes longer to launch a call than the devices to run it; single calls from there.
Expected<std::vector<CollectiveTable>> read_held_out_tables(const std::string& data_directory);
// The published tables (validate/data/collectives), then the held-out ones; the faults of both.
Expected<std::vector<CollectiveTable>> read_all_collective_tables(const std::string& data_directory);
// One table; `text` is the file's. "# NCCL_NVLS_ENABLE=0" in its head holds for every row.
Expected<CollectiveTable> parse_collective_table(const std::string& text, const std::string& file,
                                                 RowMachines& machines);

}  // namespace longhaul
