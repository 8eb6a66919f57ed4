#include "sim/study/memory_envelope.h"

#include <algorithm>

namespace longhaul {

MemoryEnvelope::MemoryEnvelope(Time step, RecordedTimeline& timeline)
    : part_ps_(std::max<std::int64_t>(1, step.ps() / kMemoryParts)), timeline_(&timeline) {}

void MemoryEnvelope::memory(std::int32_t rank, Time time, std::int64_t bytes, const MemoryByCategory&) {
  Part& part = parts_[rank];
  const std::int64_t index = time.ps() / part_ps_;
  if (part.index >= 0 && part.index != index) timeline_->samples.push_back(part.largest);
  if (part.index != index || bytes > part.largest.bytes) part.largest = {rank, time, bytes};
  part.index = index;
}

void MemoryEnvelope::finish() {
  for (const auto& [rank, part] : parts_) timeline_->samples.push_back(part.largest);
  parts_.clear();
}

}  // namespace longhaul
