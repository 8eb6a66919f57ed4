// The HTML report: one self-contained page from results and recorded timelines.
//
// Reads results.json's value (schema results/1). Values missing there are shown as a dash, never guessed; a page is
// made from whatever rows there are. Invariants: the page asks for nothing over the network, is deterministic, holds no
// date of its own, and stays under kReportMaxBytes whatever the size of the traces: marks are merged, with a count,
// until they fit.
// Ignores: how results were made; it draws them and says which wins.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/timeline/traced.h"

namespace longhaul {

inline constexpr std::size_t kReportMaxBytes = 2'000'000;

// `results`: the value of results.json. `traces`: any number of its rows; a traced row that the results do not hold is
// left out of the page.
std::string report_html(const nlohmann::ordered_json& results, const TraceBundle& traces);

}  // namespace longhaul
