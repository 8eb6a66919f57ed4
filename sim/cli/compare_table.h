// The comparison as a person reads it (120 columns) and as CSV.
#pragma once

#include <string>

#include "sim/study/run_study.h"

namespace longhaul {

// All cases: a headline, two blocks of aligned columns, and a line for each row that did not run or does not fit.
std::string compare_table(const Study& study, const StudyResult& result);

// One row an entry, the columns of the table; empty fields where a row has no times.
std::string compare_csv(const StudyResult& result);

}  // namespace longhaul
