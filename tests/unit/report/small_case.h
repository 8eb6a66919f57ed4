// A small step that the tests of reports predict and pretend to measure: llama3.2-1b, two layers, four H200.
#pragma once

#include <string>

#include "tests/unit/report/synthetic_run.h"
#include "validate/report/composed_step.h"
#include "validate/report/kept_run.h"
#include "validate/report/prepared_run.h"

namespace longhaul {

// `strategies`: entries of a study, as JSON.
Json small_study(const std::string& strategies = R"(["flashcp"])");
Prepared small_case(const std::string& label = "flashcp");

// A run of `prepared` that was made up, as it would be kept; `origin` "synthetic".
KeptRun kept_synthetic(const PreparedRun& prepared, RunRecord record);

}  // namespace longhaul
