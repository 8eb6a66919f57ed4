// The comparison as a person reads it, within 120 columns.
#pragma once

#include <string>

#include "sim/core/json.h"
#include "sim/study/run_study.h"

namespace longhaul {

// All cases: the verdict, two blocks of aligned columns, and a line for each row that did not run or does not fit.
// `results` is results_json of the same result: verdicts come from it, as in the report.
std::string compare_table(const Study& study, const StudyResult& result, const Json& results);

}  // namespace longhaul
