// Ends a traced run as soon as everything that the trace asked for has been recorded.
//
// A traced run repeats a run whose totals are known already. Where it takes long and only the first chunks are traced,
// the rest of it would be thrown away.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/schedule/schedule.h"
#include "sim/timeline/timeline.h"

namespace longhaul {

// Ops of chunks 0 .. chunks_below-1 that leave a record on `ranks`: those that are not empty.
std::int64_t traced_ops(const Schedule& schedule, const std::vector<std::int32_t>& ranks, std::int32_t chunks_below);

// Thrown through simulate() by UntilRecorded, and caught by whoever made it.
struct TraceComplete {};

// Passes records on until `ops` records of chunks have come, then throws TraceComplete.
class UntilRecorded : public TimelineSink {
 public:
  UntilRecorded(TimelineSink& sink, std::int64_t ops) : sink_(&sink), left_(ops) {}
  void op(const OpRecord& record) override;
  void memory(std::int32_t rank, Time time, std::int64_t bytes, const MemoryByCategory& categories) override {
    sink_->memory(rank, time, bytes, categories);
  }

 private:
  TimelineSink* sink_;
  std::int64_t left_;
};

}  // namespace longhaul
