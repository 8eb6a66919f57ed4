// Results as flat tables: CSV for scripts, Markdown for people.
//
// Reads results.json's value (schema results/1). Absent values are empty cells in CSV, a dash in Markdown. Columns of
// the CSV are fixed in name and order; docs/report.md lists them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace longhaul {

// One line a row, a header line first; RFC 4180 quoting.
std::string results_csv(const nlohmann::ordered_json& results);

// One GitHub table a case, with the verdict above it and rows that do not apply or fit below it.
std::string results_markdown(const nlohmann::ordered_json& results);

}  // namespace longhaul
