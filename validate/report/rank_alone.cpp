#include "validate/report/rank_alone.h"

#include <algorithm>
#include <map>
#include <vector>

namespace longhaul {

Time rank_alone(const Schedule& schedule, std::int32_t rank, Time launch,
                const std::function<Time(const OpInstance& at, std::int32_t position)>& duration) {
  std::vector<Time> streams(static_cast<std::size_t>(schedule.streams()));
  std::map<EventSlot, Time> events;  // the latest record of each slot in program order: what a wait refers to
  Time host, end;
  Cursor cursor(rank);
  OpInstance at;
  for (std::int32_t position = 0; cursor.next(schedule, at); ++position) {
    const bool empty = is_empty(schedule, at);
    if (!empty) host += launch;
    Time& stream = streams[static_cast<std::size_t>(at.op->stream)];
    Time start = empty ? stream : std::max(stream, host);
    for (const EventSlot slot : at.op->waits) {
      if (const auto found = events.find(slot); found != events.end()) start = std::max(start, found->second);
    }
    const bool runs = !empty && at.op->kind != OpKind::kCollective;
    stream = runs ? start + duration(at, position) : start;
    if (at.op->record != kNoEvent) events[at.op->record] = stream;
    end = std::max(end, stream);
  }
  return end;
}

}  // namespace longhaul
