// Exact values of dpp.md 4.2 and 7: order lists, makespans and peaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sim/strategies/pipeline/alone.h"
#include "sim/strategies/pipeline/order.h"

namespace longhaul {
namespace {

using Counts = std::vector<std::int32_t>;

// F = 1, B = 2 picoseconds, no communication: the unit times of dpp.md 4.2's vectors.
PipelineTimes unit_times(const PipelineOrder& order) {
  const auto chunks = static_cast<std::size_t>(order.chunks);
  return PipelineTimes::same_on_all_stages(static_cast<std::int32_t>(order.stages.size()),
                                           std::vector<Time>(chunks, Time::from_ps(1)),
                                           std::vector<Time>(chunks, Time::from_ps(2)), Time::zero());
}

struct Vector {
  Counts slices;
  std::int32_t stages;
  std::int64_t makespan;
  Counts peaks;
};

class DppVectors : public testing::TestWithParam<Vector> {};

TEST_P(DppVectors, MakespanAndPeaksAreThePapers) {
  const Vector& vector = GetParam();
  const PipelineOrder order = sliced_1f1b_order(vector.stages, make_streams({vector.slices}));
  EXPECT_EQ(pipeline_makespan(order, unit_times(order)).ps(), vector.makespan);
  EXPECT_EQ(run_pipeline_alone(order, unit_times(order)).makespan.ps(), vector.makespan);
  EXPECT_EQ(peak_live_chunks(order), vector.peaks);
}

// dpp.md 4.2 "Test vectors".
INSTANTIATE_TEST_SUITE_P(Section42, DppVectors,
                         testing::Values(Vector{{4, 4, 4, 4}, 4, 57, {7, 6, 5, 4}},
                                         Vector{{3, 1, 1, 1, 1, 1}, 4, 33, {6, 5, 4, 3}},
                                         Vector{{5, 3, 1, 1, 1, 1, 1, 1, 1}, 8, 66, {12, 11, 10, 9, 8, 7, 6, 5}},
                                         Vector{{6, 4, 2, 1, 1, 1}, 2, 48, {7, 6}}));

// dpp.md 4.2: "with the warm-up from Eq. 7 the makespan was the same for every sequence order tried", 9 units of
// bubble where greedy dispatch has 13.
TEST(DppOrder, SequenceOrderDoesNotChangeTheMakespan) {
  for (const Counts& slices : {Counts{1, 3, 1, 3, 1, 1}, Counts{3, 3, 1, 1, 1, 1}}) {
    const PipelineOrder order = sliced_1f1b_order(4, make_streams({slices}));
    EXPECT_EQ(pipeline_makespan(order, unit_times(order)).ps(), 10 * 3 + 9);
  }
}

// Slices 3,1 on 2 stages: N_split = 3, so stage 0 warms up 2-0-2+3 = 3 and stage 1 two. Forwards 0 1 2 3; backwards
// go down the slices of the first sequence: 2 1 0, then 3.
TEST(DppOrder, ListsOfAHandMadeCase) {
  const PipelineOrder order = sliced_1f1b_order(2, make_streams({{3, 1}}));
  constexpr PipelinePass kF = PipelinePass::kForward;
  constexpr PipelinePass kB = PipelinePass::kBackward;
  const std::vector<PipelineOp> stage0{{kF, 0}, {kF, 1}, {kF, 2}, {kF, 3}, {kB, 2}, {kB, 1}, {kB, 0}, {kB, 3}};
  const std::vector<PipelineOp> stage1{{kF, 0}, {kF, 1}, {kF, 2}, {kB, 2}, {kF, 3}, {kB, 1}, {kB, 0}, {kB, 3}};
  EXPECT_EQ(order.stages[0], stage0);
  EXPECT_EQ(order.stages[1], stage1);
  EXPECT_EQ(order.previous_slice, (Counts{-1, 0, 1, -1}));
  EXPECT_EQ(order.next_slice, (Counts{1, 2, -1, -1}));
}

// dpp.md 4.2: f2b[u+i] = u+c-1-i.
TEST(DppOrder, BackwardOrderReversesEachSequence) {
  EXPECT_EQ(backward_order({10, {3, 1, 2}}), (Counts{12, 11, 10, 13, 15, 14}));
}

// dpp.md 7.1, 1F1B: w = min(p-r-1, m); then pairs; then the rest. p = 3, m = 2: stage 0 has 2 warm-up forwards and no
// pair left, stage 1 one, stage 2 none.
TEST(OneFOneBOrder, ListsOfAHandMadeCase) {
  const PipelineOrder order = one_f_one_b_order(3, 2);
  constexpr PipelinePass kF = PipelinePass::kForward;
  constexpr PipelinePass kB = PipelinePass::kBackward;
  EXPECT_EQ(order.stages[0], (std::vector<PipelineOp>{{kF, 0}, {kF, 1}, {kB, 0}, {kB, 1}}));
  EXPECT_EQ(order.stages[1], (std::vector<PipelineOp>{{kF, 0}, {kF, 1}, {kB, 0}, {kB, 1}}));
  EXPECT_EQ(order.stages[2], (std::vector<PipelineOp>{{kF, 0}, {kB, 0}, {kF, 1}, {kB, 1}}));
}

// dpp.md 7: bubble rate (p-1)/(m+p-1), so makespan (m+p-1)(F+B); peak p-r, when m >= p-r.
TEST(OneFOneBOrder, BubbleAndPeaksOfTheTable) {
  for (const std::int32_t stages : {1, 2, 4, 7, 16}) {
    for (const std::int32_t microbatches : {1, 2, 5, 16, 33}) {
      const PipelineOrder order = one_f_one_b_order(stages, microbatches);
      EXPECT_EQ(pipeline_makespan(order, unit_times(order)).ps(), (microbatches + stages - 1) * 3);
      const Counts peaks = peak_live_chunks(order);
      for (std::int32_t r = 0; r < stages; ++r) {
        EXPECT_EQ(peaks[static_cast<std::size_t>(r)], std::min(microbatches, stages - r));
      }
    }
  }
}

// dpp.md 7, Seq1F1B: bubble (p-1)(F+B+W)/s: with F+B+W = 3 a slice, (p-1) x 3 whatever s; memory (p-r-1+s)/s.
TEST(Seq1F1BOrder, BubbleAndPeaksOfTheTable) {
  for (const std::int32_t stages : {2, 4, 8}) {
    for (const std::int32_t slices : {1, 2, 4, 7}) {
      const std::int32_t microbatches = 2 * stages;
      const PipelineOrder order = seq1f1b_order(stages, microbatches, slices);
      EXPECT_EQ(pipeline_makespan(order, unit_times(order)).ps(), (microbatches * slices + stages - 1) * 3);
      const Counts peaks = peak_live_chunks(order);
      for (std::int32_t r = 0; r < stages; ++r) {
        EXPECT_EQ(peaks[static_cast<std::size_t>(r)], stages - r - 1 + slices);
      }
    }
  }
}

// Streams run one after another: stage 0 begins and ends every stream, so the makespans add up.
TEST(DppOrder, StreamsAddUp) {
  const PipelineOrder both = sliced_1f1b_order(4, make_streams({{5, 3}, {1, 1, 1}}));
  const PipelineOrder first = sliced_1f1b_order(4, make_streams({{5, 3}}));
  const PipelineOrder second = sliced_1f1b_order(4, make_streams({{1, 1, 1}}));
  EXPECT_EQ(pipeline_makespan(both, unit_times(both)),
            pipeline_makespan(first, unit_times(first)) + pipeline_makespan(second, unit_times(second)));
}

// One micro-batch on two stages with a latency of 5: F0 at 0..1, F1 at 6..7, B1 at 7..9, B0 at 14..16.
TEST(PipelineAlone, LatencyIsPaidOnEveryEdge) {
  const PipelineOrder order = one_f_one_b_order(2, 1);
  PipelineTimes times = unit_times(order);
  times.p2p = Time::from_ps(5);
  const PipelineRun run = run_pipeline_alone(order, times);
  EXPECT_EQ(run.makespan.ps(), 16);
  EXPECT_EQ(run.spans[1][0].start.ps(), 6);
  EXPECT_EQ(run.spans[0][1].start.ps(), 14);
  EXPECT_EQ(run.busy[0].ps(), 3);
}

// Unequal chunks, two stages, slices {2}: durations F = 1, 3 and B = 2, 5. Stage 1 warms up one forward.
// Stage 0: F0 0-1, F1 1-4. Stage 1: F0 1-2, F1 4-7, B1 7-12, B0 12-14. Stage 0: B1 12-17, B0 17-19.
TEST(PipelineAlone, UnequalChunksByHand) {
  const PipelineOrder order = sliced_1f1b_order(2, make_streams({{2}}));
  const PipelineTimes times = PipelineTimes::same_on_all_stages(2, {Time::from_ps(1), Time::from_ps(3)},
                                                                {Time::from_ps(2), Time::from_ps(5)}, Time::zero());
  const PipelineRun run = run_pipeline_alone(order, times);
  EXPECT_EQ(run.makespan.ps(), 19);
  EXPECT_EQ(run.spans[1].back().start.ps(), 12);
  EXPECT_EQ(run.spans[0][2].start.ps(), 12);
}

TEST(PipelineAloneDeathTest, AnOrderThatWaitsForItselfIsABug) {
  PipelineOrder order = one_f_one_b_order(2, 1);
  std::swap(order.stages[1][0], order.stages[1][1]);
  EXPECT_DEATH(pipeline_makespan(order, unit_times(order)), "waits for itself: stage 0, position 1");
}

}  // namespace
}  // namespace longhaul
