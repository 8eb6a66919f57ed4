// What `longhaul validate` says of one run: the terminal's text, JSON, Markdown and JUnit XML.
//
// All four are made of one ValidationReport and agree. JSON: `"schema": "validation/1"`, keys that end in `_ms` are
// milliseconds, errors are fractions (predicted / measured - 1); validate/report/validation.schema.json describes it.
// Deterministic; no date but the run's own. Ignores where the texts go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/json.h"
#include "validate/report/comparison.h"
#include "validate/report/gates.h"

namespace longhaul {

struct ValidationReport {
  Comparison comparison;
  std::string layout;       // "cp 8"
  std::string calibration;  // what the predictions stand on, one line
  GateReport gates;
  std::optional<double> max_error;  // as asked for
  double max_slowdown = kDefaultMaxSlowdown;
  std::string baseline;  // the file as the user named it; empty: none
  std::string baseline_date;
};

// True if no gate fails and the numbers are right.
bool passes(const ValidationReport& report);

std::string validation_text(const ValidationReport& report);
Json validation_json(const ValidationReport& report);
// One line a row: section, name, source, calls, predicted, measured, ...; seconds as ms, peak memory in bytes.
std::string validation_csv(const ValidationReport& report);
// A summary for a pull request: verdict first, then what failed, then tables.
std::string validation_markdown(const ValidationReport& report);
// One test suite a gate suite, one test case a check: undecided ones are skipped with their message.
std::string validation_junit(const ValidationReport& report);

}  // namespace longhaul
