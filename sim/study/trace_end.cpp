#include "sim/study/trace_end.h"

namespace longhaul {

std::int64_t traced_ops(const Schedule& schedule, const std::vector<std::int32_t>& ranks, std::int32_t chunks_below) {
  std::int64_t ops = 0;
  for (const std::int32_t rank : ranks) {
    Cursor cursor(rank);
    OpInstance at;
    while (cursor.next(schedule, at)) {
      if (at.chunk >= 0 && at.chunk < chunks_below && !is_empty(schedule, at)) ++ops;
    }
  }
  return ops;
}

void UntilRecorded::op(const OpRecord& record) {
  sink_->op(record);
  if (record.chunk >= 0 && --left_ == 0) throw TraceComplete{};
}

}  // namespace longhaul
