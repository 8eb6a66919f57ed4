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

struct MeasuredCollective {
  CollectiveRow row;
  NcclMachine machine;
  double measured_us = 0;
  NcclPlan plan;  // of the row's call
};

// What the benchmark of the row would print.
NcclTime predict(const NcclConstants& constants, const MeasuredCollective& measured);

struct CollectiveTable {
  std::string name;        // file name without ending
  std::string not_fitted;  // why the constants are not fitted to it ("# not fitted: ..."); empty: they are
  std::string hard;        // why it is predicted badly ("# hard: ..."), if it is
  std::vector<MeasuredCollective> rows;
};

// All tables of `directory`, by name. Errors of all files at once: those of the rows, machines that do not ship, a row
// without a measured time, a folder without tables.
Expected<std::vector<CollectiveTable>> read_collective_tables(const std::string& directory,
                                                              const std::string& data_directory);
// One table; `text` is the file's.
Expected<CollectiveTable> parse_collective_table(const std::string& text, const std::string& file,
                                                 RowMachines& machines);

}  // namespace longhaul
