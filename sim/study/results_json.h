// Results as JSON: `"schema": "results/1"` (cli.md, "Results"), and its text.
//
// Keys that end in `_ms`, and all that stand below such a key, are milliseconds: decimals of integer picoseconds with
// exactly nine places, so that the parts of a step sum to it digit by digit (exact up to 2^53 ps, 2.5 hours).
// Ignored on purpose: date, host, duration, threads; they stand in run.json.
#pragma once

#include <cstdint>
#include <string>

#include "sim/core/json.h"
#include "sim/study/run_study.h"

namespace longhaul {

// The version of Longhaul, as in its build.
const char* longhaul_version();

// One entry of "strategies". Hidden entries have "hidden": true.
Json entry_json(const EntryResult& entry, const CaseResult& of);

Json results_json(const Study& study, const StudyResult& result);

// Two-space indentation; one line for what fits into 120 columns and for a flat object in a list (a rank). Ends in a
// newline.
// `lists`: how a list that is longer than a line is broken. Filled: as many to a line as it takes, a comma alone
// between them, if it holds nothing but values and flat pairs, as columns of numbers do.
enum class LongLists : std::uint8_t { kOneALine, kFilled };
std::string results_text(const Json& results, LongLists lists = LongLists::kOneALine);

}  // namespace longhaul
