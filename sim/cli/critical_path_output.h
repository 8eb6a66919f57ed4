// The critical path as `longhaul simulate` shows it: a block of its table and a part of its JSON.
#pragma once

#include <optional>
#include <string>

#include "sim/analysis/critical_path.h"
#include "sim/core/json.h"

namespace longhaul {

// Time by class, what it means, and the ten longest stretches. Without a path: one line that says why it is left out.
// `steps`: simulated steps of the entry; the path is that of the first.
std::string critical_path_text(const std::optional<CriticalPath>& path, std::int64_t steps);

// {"step_time_ms", "rank_hops", "segment_count", "summary": one object a class, "segments": the first 1000}, or
// {"left_out": why}.
Json critical_path_json(const Schedule& schedule, const std::optional<CriticalPath>& path);

}  // namespace longhaul
