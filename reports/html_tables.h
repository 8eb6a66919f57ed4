// The tables of a report as HTML.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "reports/result_rows.h"
#include "reports/verdict.h"

namespace longhaul {

// One row a strategy: times, rates, memory, bytes, what bounds it. Rows that do not apply say why across the table.
std::string result_table_html(const ResultCase& one, const CaseVerdict& verdict);

// The parts of each step in one unit; empty if no row has any.
std::string time_table_html(const ResultCase& one);

// Memory by category at the peak; empty if no row has any.
std::string memory_table_html(const ResultCase& one);

// Rows that do not fit, with reasons and remedies, and notes of rows; empty if there are none.
std::string remarks_html(const ResultCase& one);

// Everything at the top of the results but rows and study, as a list of terms.
std::string provenance_html(const nlohmann::ordered_json& results);

}  // namespace longhaul
