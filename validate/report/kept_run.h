// A run as it is kept: the exact study that ran, so that it can be predicted again, and what was measured.
//
// JSON, `"schema": "kept-run/2"` (kept-run.schema.json): `origin` ("measured" by a device, "emulated" on the host,
// "synthetic" for fixtures of tests), `study` (study/1, every default filled in, reductions applied), `case`,
// `strategy` (label), `record` (longhaul-run/2, validate/device/run_record.h; its ops are columns of numbers,
// validate/device/op_columns.h). Files of kept-run/1, whose records are longhaul-run/1, are read too: only the form of
// ops differs. A bare record of either format is accepted where the study is known from elsewhere. Only measured runs
// count as accuracy data.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/core/json.h"
#include "validate/device/run_record.h"

namespace longhaul {

struct KeptRun {
  std::string origin;
  Json study;  // null in a bare record
  std::string study_case, strategy;
  RunRecord record;
};

// As kept-run/2. The same run gives the same bytes.
std::string kept_run_text(const KeptRun& run);
// Every fault of the file at once, with JSON pointers.
Expected<KeptRun> parse_kept_run(const Json& json, const std::string& file);
Expected<KeptRun> read_kept_run(const std::string& file);

}  // namespace longhaul
