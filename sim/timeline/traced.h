// The recorded timelines of a study: what a report draws and what a Chrome trace is written from.
//
// One Traced is one strategy of one case with the op records and memory samples of a few ranks. Invariants: records
// are those of the executor, unaltered; `owner` keeps the schedule alive that the records' labels point into.
// Ignores: totals, which stand in the results.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/core/sim_time.h"
#include "sim/timeline/timeline.h"

namespace longhaul {

struct Traced {
  std::string case_name;                // as in the results; empty when the study has no cases
  std::string strategy;                 // the label of the row in the results
  std::vector<std::string> streams;     // names by StreamId: "compute", "copy-in", "copy-out", then the group roles
  int gpus_per_node = 0;                // to name the node of a rank; 0: not known
  std::int64_t memory_limit_bytes = 0;  // what a rank may hold: device memory less the reserve; 0: not known
  Time step;                            // of the whole step, which may go on after the last record
  std::shared_ptr<const RecordedTimeline> timeline;  // never null
  std::shared_ptr<const void> owner;                 // of the labels; any object, usually the Schedule
};

struct TraceBundle {
  std::vector<Traced> traced;  // in the order of the results' rows; rows without a trace are left out
};

}  // namespace longhaul
