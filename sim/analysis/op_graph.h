// What each op of a simulated step had to wait for: the records of a run, linked by the order of the schedule.
//
// Links within a rank are exact, not guessed from equal times: the schedule's programs are walked again, and each op
// gets the op before it on its stream and the ops behind the events that it waits for. Empty ops leave no record; who
// waits for one waits for what it waited for. Of one stream only the latest op is kept: the earlier ones end before it.
// Units: Time, indices into the records. Invariant: links point to ops earlier in the rank's launch order.
// Ignores: times (critical_path.h compares them) and the members of collectives on other ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/schedule/schedule.h"
#include "sim/timeline/timeline.h"

namespace longhaul {

struct OpGraph {
  std::vector<OpRecord> records;
  int streams = 0;                                   // of a rank
  std::vector<std::vector<std::int32_t>> by_rank;    // records of a rank in launch order; empty for folded ranks
  std::vector<std::vector<std::int32_t>> by_stream;  // by rank * streams + stream, in the order in which they ran
  std::vector<std::int32_t> place;                   // by record: its index in by_rank
  std::vector<std::int32_t> wait_begin;              // by record: the first of its waits ...
  std::vector<std::int32_t> wait_end;                // ... and one past the last
  std::vector<std::int32_t> waits;                   // records; of one op in stream order

  std::span<const std::int32_t> waits_of(std::int32_t record) const {
    const auto at = static_cast<std::size_t>(record);
    return std::span(waits).subspan(static_cast<std::size_t>(wait_begin[at]),
                                    static_cast<std::size_t>(wait_end[at] - wait_begin[at]));
  }
};

// `records`: all of all ranks that have any, those of one rank and stream in the order in which they ran (as a
// TimelineSink gets them). Asserts that they are what the programs of those ranks leave, no more and no less.
OpGraph link_ops(const Schedule& schedule, std::vector<OpRecord> records);

}  // namespace longhaul
