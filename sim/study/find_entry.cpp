#include "sim/study/find_entry.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul {

Expected<FoundEntry> find_entry(const Study& study, const std::string& label, const std::string& case_name) {
  std::vector<FoundEntry> found;
  std::vector<std::string> labels, cases, in_cases;
  for (const StudyCase& study_case : study.cases) {
    cases.push_back(study_case.name);
    if (!case_name.empty() && study_case.name != case_name) continue;
    for (const StrategyEntry& entry : study_case.strategies) {
      if (std::find(labels.begin(), labels.end(), entry.label) == labels.end()) labels.push_back(entry.label);
      if (entry.label != label) continue;
      found.push_back({&study_case, &entry});
      in_cases.push_back(study_case.name);
    }
  }
  if (found.size() == 1) return found.front();
  InputError error{"<command line>", "", "", "", ""};
  if (!case_name.empty() && std::find(cases.begin(), cases.end(), case_name) == cases.end()) {
    error.path = "--case";
    error.message = fmt::format("the study has no case \"{}\"", case_name);
    error.expected = fmt::format("one of {}", fmt::join(cases, ", "));
    error.nearest = nearest_name(case_name, cases);
  } else if (found.empty()) {
    error.path = "--strategy";
    error.message = fmt::format("the study has no strategy \"{}\"", label);
    error.expected = fmt::format("one of {}", fmt::join(labels, ", "));
    error.nearest = nearest_name(label, labels);
  } else {
    error.path = "--case";
    error.message = fmt::format("\"{}\" stands in {} cases", label, found.size());
    error.expected = fmt::format("--case with one of {}", fmt::join(in_cases, ", "));
  }
  return tl::unexpected(Errors{error});
}

}  // namespace longhaul
