#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "sim/strategies/pipeline/alone.h"
#include "sim/strategies/pipeline/order.h"

namespace longhaul {
namespace {

using Counts = std::vector<std::int32_t>;

Counts some_counts() {
  return *rc::gen::resize(12, rc::gen::nonEmpty(rc::gen::container<Counts>(rc::gen::inRange(1, 7))));
}

std::vector<Time> some_times(std::size_t count) {
  std::vector<Time> times;
  for (std::size_t i = 0; i < count; ++i) times.push_back(Time::from_ps(*rc::gen::inRange(0, 1000)));
  return times;
}

// dpp.md 4.2, found on 7 mixes there: with equal chunks, makespan = sum (F+B) + (p-1)(F+B), whatever the mix, the
// order of the sequences and N_split, when F <= B as in training.
RC_GTEST_PROP(PipelineOrder, EqualChunksCostOneFillOfTheStages, ()) {
  const auto stages = *rc::gen::inRange(1, 12);
  const Counts counts = some_counts();
  const std::int64_t forward = *rc::gen::inRange(1, 100);
  const std::int64_t backward = forward * *rc::gen::inRange(1, 4);
  const PipelineOrder order = sliced_1f1b_order(stages, make_streams({counts}));
  const auto chunks = static_cast<std::size_t>(order.chunks);
  const PipelineTimes times =
      PipelineTimes::same_on_all_stages(stages, std::vector<Time>(chunks, Time::from_ps(forward)),
                                        std::vector<Time>(chunks, Time::from_ps(backward)), Time::zero());
  RC_ASSERT(pipeline_makespan(order, times).ps() == (order.chunks + stages - 1) * (forward + backward));
}

// Every chunk once forward and once backward in every list; the live chunks of stage r are at most w_r + 1 = |W_p|
// (Eq. 7), and exactly that many as soon as the stream is long enough.
RC_GTEST_PROP(PipelineOrder, ListsAreCompleteAndTheWindowIsEq7, ()) {
  const auto stages = *rc::gen::inRange(1, 12);
  const std::vector<PipelineStream> streams = make_streams({some_counts(), some_counts()});
  const PipelineOrder order = sliced_1f1b_order(stages, streams);
  const Counts peaks = peak_live_chunks(order);
  for (std::int32_t stage = 0; stage < stages; ++stage) {
    const std::vector<PipelineOp>& ops = order.stages[static_cast<std::size_t>(stage)];
    Counts seen(static_cast<std::size_t>(order.chunks), 0);
    for (const PipelineOp& op : ops) {
      std::int32_t& state = seen[static_cast<std::size_t>(op.chunk)];
      RC_ASSERT(state == (op.pass == PipelinePass::kForward ? 0 : 1));
      ++state;
    }
    RC_ASSERT(std::all_of(seen.begin(), seen.end(), [](std::int32_t state) { return state == 2; }));
    std::int32_t window = 0;
    for (const PipelineStream& stream : streams) {
      window = std::max(window, std::min(stream.chunks(), stages - stage - 1 + stream.n_split()));
    }
    RC_ASSERT(peaks[static_cast<std::size_t>(stage)] == window);
  }
}

// Whatever the durations and the latency: no dependency is violated, no lane does two things, nothing starts later
// than its latest input (work-conserving in list order), and both entry points agree.
RC_GTEST_PROP(PipelineAlone, SpansRespectEveryDependency, ()) {
  const auto stages = *rc::gen::inRange(1, 6);
  const PipelineOrder order = sliced_1f1b_order(stages, make_streams({some_counts(), some_counts()}));
  const auto chunks = static_cast<std::size_t>(order.chunks);
  PipelineTimes times;
  times.forward = some_times(static_cast<std::size_t>(stages) * chunks);
  times.backward = some_times(static_cast<std::size_t>(stages) * chunks);
  times.p2p = Time::from_ps(*rc::gen::inRange(0, 50));
  const PipelineRun run = run_pipeline_alone(order, times);
  RC_ASSERT(run.makespan == pipeline_makespan(order, times));
  std::vector<Counts> position(2 * order.stages.size(), Counts(chunks, 0));  // [stage][forward], [stage][backward]
  for (std::size_t stage = 0; stage < order.stages.size(); ++stage) {
    for (std::size_t i = 0; i < order.stages[stage].size(); ++i) {
      const PipelineOp& op = order.stages[stage][i];
      position[2 * stage + (op.pass == PipelinePass::kBackward)][static_cast<std::size_t>(op.chunk)] =
          static_cast<std::int32_t>(i);
    }
  }
  const auto end_of = [&](std::size_t stage, bool backward, std::int32_t chunk) {
    return run.spans[stage][static_cast<std::size_t>(position[2 * stage + backward][static_cast<std::size_t>(chunk)])]
        .end;
  };
  for (std::size_t stage = 0; stage < order.stages.size(); ++stage) {
    for (std::size_t i = 0; i < order.stages[stage].size(); ++i) {
      const PipelineOp& op = order.stages[stage][i];
      const bool backward = op.pass == PipelinePass::kBackward;
      Time ready = i > 0 ? run.spans[stage][i - 1].end : Time::zero();
      const std::int32_t slice =
          (backward ? order.next_slice : order.previous_slice)[static_cast<std::size_t>(op.chunk)];
      if (slice >= 0) ready = std::max(ready, end_of(stage, backward, slice));
      if (!backward && stage > 0) ready = std::max(ready, end_of(stage - 1, false, op.chunk) + times.p2p);
      if (backward && stage + 1 < order.stages.size()) {
        ready = std::max(ready, end_of(stage + 1, true, op.chunk) + times.p2p);
      }
      if (backward) ready = std::max(ready, end_of(stage, false, op.chunk));
      RC_ASSERT(run.spans[stage][i].start == ready);
    }
  }
}

}  // namespace
}  // namespace longhaul
