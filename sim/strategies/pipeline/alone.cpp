#include "sim/strategies/pipeline/alone.h"

#include <algorithm>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Ends of the operations so far, by (stage, chunk); Time::max() is "not yet run".
class LaneRunner {
 public:
  LaneRunner(const PipelineOrder& order, const PipelineTimes& times)
      : order_(order), times_(times), stages_(order.stages.size()), chunks_(static_cast<std::size_t>(order.chunks)) {
    LH_ASSERT(times.forward.size() == stages_ * chunks_ && times.backward.size() == stages_ * chunks_,
              "durations of {} and {} operations for {} stages x {} chunks", times.forward.size(),
              times.backward.size(), stages_, chunks_);
    LH_ASSERT(order.previous_slice.size() == chunks_ && order.next_slice.size() == chunks_,
              "slice links of {} chunks for {}", order.previous_slice.size(), chunks_);
    forward_end_.assign(stages_ * chunks_, Time::max());
    backward_end_.assign(stages_ * chunks_, Time::max());
    next_.assign(stages_, 0);
    free_.assign(stages_, Time::zero());
  }

  // Calls `record(stage, start, end)` for every operation, each stage in list order.
  template <class Record>
  void run(Record&& record) {
    // A sweep visits the stages up and down, so that forwards and backwards both travel far in one sweep.
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t stage = 0; stage < stages_; ++stage) progress |= advance(stage, record);
      for (std::size_t stage = stages_; stage-- > 0;) progress |= advance(stage, record);
    }
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      LH_ASSERT(next_[stage] == order_.stages[stage].size(), "pipeline order waits for itself: stage {}, position {}",
                stage, next_[stage]);
    }
  }

 private:
  template <class Record>
  bool advance(std::size_t stage, Record&& record) {
    const std::vector<PipelineOp>& ops = order_.stages[stage];
    bool progress = false;
    for (; next_[stage] < ops.size(); ++next_[stage], progress = true) {
      const PipelineOp& op = ops[next_[stage]];
      const Time ready = ready_time(stage, op);
      if (ready == Time::max()) break;
      const bool forward = op.pass == PipelinePass::kForward;
      const std::size_t at = index(stage, op.chunk);
      const Time start = std::max(ready, free_[stage]);
      const Time end = start + (forward ? times_.forward[at] : times_.backward[at]);
      (forward ? forward_end_ : backward_end_)[at] = end;
      free_[stage] = end;
      record(stage, start, end);
    }
    return progress;
  }

  // When the inputs of `op` are there; Time::max() if an operation that it needs has not run.
  Time ready_time(std::size_t stage, const PipelineOp& op) const {
    const auto chunk = static_cast<std::size_t>(op.chunk);
    const bool forward = op.pass == PipelinePass::kForward;
    Time ready = Time::zero();
    if (forward && stage > 0) {
      ready = later(ready, forward_end_[index(stage - 1, op.chunk)], times_.p2p);
    } else if (!forward) {
      ready = stage + 1 < stages_ ? later(ready, backward_end_[index(stage + 1, op.chunk)], times_.p2p)
                                  : later(ready, forward_end_[index(stage, op.chunk)], Time::zero());
    }
    const std::int32_t slice = forward ? order_.previous_slice[chunk] : order_.next_slice[chunk];
    if (slice >= 0) ready = later(ready, (forward ? forward_end_ : backward_end_)[index(stage, slice)], Time::zero());
    return ready;
  }

  static Time later(Time ready, Time end, Time latency) {
    if (ready == Time::max() || end == Time::max()) return Time::max();
    return std::max(ready, end + latency);
  }

  std::size_t index(std::size_t stage, std::int32_t chunk) const {
    return stage * chunks_ + static_cast<std::size_t>(chunk);
  }

  const PipelineOrder& order_;
  const PipelineTimes& times_;
  std::size_t stages_;
  std::size_t chunks_;
  std::vector<Time> forward_end_;
  std::vector<Time> backward_end_;
  std::vector<std::size_t> next_;  // [stage] position in its list
  std::vector<Time> free_;         // [stage] end of its last operation
};

}  // namespace

PipelineTimes PipelineTimes::same_on_all_stages(std::int32_t stages, const std::vector<Time>& forward,
                                                const std::vector<Time>& backward, Time p2p) {
  PipelineTimes times;
  times.p2p = p2p;
  for (std::int32_t stage = 0; stage < stages; ++stage) {
    times.forward.insert(times.forward.end(), forward.begin(), forward.end());
    times.backward.insert(times.backward.end(), backward.begin(), backward.end());
  }
  return times;
}

PipelineRun run_pipeline_alone(const PipelineOrder& order, const PipelineTimes& times) {
  PipelineRun run;
  run.spans.resize(order.stages.size());
  run.busy.resize(order.stages.size());
  for (std::size_t stage = 0; stage < order.stages.size(); ++stage) {
    run.spans[stage].reserve(order.stages[stage].size());
  }
  LaneRunner(order, times).run([&run](std::size_t stage, Time start, Time end) {
    run.spans[stage].push_back({start, end});
    run.busy[stage] += end - start;
    run.makespan = std::max(run.makespan, end);
  });
  return run;
}

Time pipeline_makespan(const PipelineOrder& order, const PipelineTimes& times) {
  Time makespan;
  LaneRunner(order, times).run([&makespan](std::size_t, Time, Time end) { makespan = std::max(makespan, end); });
  return makespan;
}

}  // namespace longhaul
