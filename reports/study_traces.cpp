#include "reports/study_traces.h"

#include <utility>

namespace longhaul {
namespace {

std::vector<std::string> stream_names(const Schedule& schedule) {
  std::vector<std::string> names = {"compute", "copy-in", "copy-out"};
  names.insert(names.end(), schedule.roles.begin(), schedule.roles.end());
  return names;
}

}  // namespace

TraceBundle study_traces(const StudyResult& result) {
  TraceBundle bundle;
  for (const CaseResult& one : result.cases) {
    for (const EntryResult& entry : one.entries) {
      if (entry.hidden || entry.trace == nullptr) continue;
      Traced traced;
      traced.case_name = entry.case_name;
      traced.strategy = entry.label;
      traced.streams = stream_names(*entry.trace->schedule);
      traced.gpus_per_node = one.setup->cluster.gpus_per_node();
      traced.memory_limit_bytes = one.setup->memory_limit();
      if (entry.summary) traced.step = entry.summary->step;
      traced.timeline = {entry.trace, &entry.trace->timeline};
      traced.owner = entry.trace->schedule;
      bundle.traced.push_back(std::move(traced));
    }
  }
  return bundle;
}

}  // namespace longhaul
