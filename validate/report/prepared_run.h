// One entry of a study, set up and planned: what runs, and what is predicted for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/json.h"
#include "sim/study/setup.h"

namespace longhaul {

// Not to be moved: its parts point to each other.
struct PreparedRun {
  Study study;
  Json study_json;  // reads as `study`, the layout and a plan of least time written out
  const StudyCase* study_case = nullptr;
  const StrategyEntry* entry = nullptr;
  std::optional<CaseSetup> setup;
  Degrees degrees;
  PlannedStep planned;
  std::vector<std::string> reductions;  // what was made smaller, in words
};
using Prepared = std::unique_ptr<PreparedRun>;

// The first step of the entry `label` of the case. Errors: faults of the study; an unknown label or case; a layout that
// cannot be filled; "LABEL is not applicable: WHY" at the entry.
Expected<Prepared> prepare_run(const Json& study, const std::string& file, const std::string& label,
                               const std::string& study_case);

}  // namespace longhaul
