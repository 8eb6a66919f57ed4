// One entry of a study by its label, for the commands that look at one strategy.
#pragma once

#include <string>

#include "sim/scenario/study.h"

namespace longhaul {

struct FoundEntry {
  const StudyCase* study_case = nullptr;
  const StrategyEntry* entry = nullptr;
};

// `case_name` may be empty when the label stands in one case only. Errors name the nearest label or list the cases.
Expected<FoundEntry> find_entry(const Study& study, const std::string& label, const std::string& case_name);

}  // namespace longhaul
