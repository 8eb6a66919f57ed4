// A sink that keeps every op record, and of the memory samples the largest of each small part of the step.
//
// A rank changes what it holds at every op: hundreds of thousands of samples that no picture shows. Invariant: the peak
// of every rank is kept, at its first time; within a part nothing was larger than what is kept of it. Ignored: when
// inside a part memory falls.
#pragma once

#include <map>

#include "sim/timeline/timeline.h"

namespace longhaul {

inline constexpr std::int64_t kMemoryParts = 1000;

class MemoryEnvelope : public TimelineSink {
 public:
  // `step` is the length of the run; `timeline` must outlive this. Call finish() after the run.
  MemoryEnvelope(Time step, RecordedTimeline& timeline);
  void op(const OpRecord& record) override { timeline_->op(record); }
  void memory(std::int32_t rank, Time time, std::int64_t bytes, const MemoryByCategory& categories) override;
  void finish();

 private:
  struct Part {
    std::int64_t index = -1;
    RecordedTimeline::MemorySample largest;
  };
  std::int64_t part_ps_ = 1;
  RecordedTimeline* timeline_;
  std::map<std::int32_t, Part> parts_;  // by rank, the part that is being filled
};

}  // namespace longhaul
