// zigzag-cp on the simulated clock with fixed times: what hides behind what.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/unit/executor/hand_made.h"
#include "tests/unit/strategies/ring_case.h"

namespace longhaul {
namespace {

struct RingTimes {
  std::int64_t forward, backward;  // attention of one step
  std::int64_t hop;                // of K, V, and of dK, dV: equal bytes between the same ranks, so equal times
};

// Everything else takes no time.
std::int64_t step_time(const Schedule& schedule, const RingTimes& times) {
  hand_made::FixedDurations durations;
  durations.rule = [&](const OpInstance& at) -> std::int64_t {
    if (at.op->kind != OpKind::kAttention) return 0;
    return at.op->pass == Pass::kBackward ? times.backward : times.forward;
  };
  hand_made::FixedNetwork network;
  network.rule = [&](const CollectiveCall& call) -> std::int64_t {
    const std::string& label = call.members.front().op->label;
    return label == "kv_hop" || label == "kv_grad_hop" ? times.hop : 0;
  };
  return simulate(schedule, durations, network).step.ps();
}

// Forward: hop t + 1 runs beside step t, and both begin when step t - 1 and hop t are done; the last step has no hop:
//   (N - 1) max(A, H) + A.
// Backward, with B an attention. Step 0 runs beside the first hop of K, V. Steps 1 .. N - 2 run
// beside the hop of dK, dV of the step before and, behind it on the same stream, the next hop of K, V. The last step
// runs beside a hop of dK, dV alone, and the hop home follows:
//   max(B, H) + (N - 2) max(B, 2 H) + max(B, H) + H.
TEST(RingTime, ClosedForm) {
  for (const int ranks : {2, 3, 4, 6}) {
    for (const std::int64_t layers : {1, 3}) {
      RingCase of;
      of.cp = ranks;
      of.layers = layers;
      of.sequences = {{static_cast<std::int64_t>(8 * ranks)}};  // every step has pairs on every rank
      const auto schedule = plan_zigzag_step(of)->schedule;
      for (const RingTimes& t : {RingTimes{100, 250, 10}, RingTimes{100, 250, 130}, RingTimes{10, 25, 100},
                                 RingTimes{0, 0, 7}, RingTimes{7, 3, 0}}) {
        const std::int64_t n = ranks;
        const std::int64_t forward = (n - 1) * std::max(t.forward, t.hop) + t.forward;
        const std::int64_t backward =
            2 * std::max(t.backward, t.hop) + (n - 2) * std::max(t.backward, 2 * t.hop) + t.hop;
        EXPECT_EQ(step_time(*schedule, t), layers * (forward + backward)) << ranks << " ranks, hop " << t.hop;
      }
    }
  }
}

// The same schedules with every kind of step keep the executor's rules on memory and reads (asserted inside).
TEST(RingTime, RunsWithEveryOption) {
  for (const int zero_stage : {0, 3}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      for (const int ranks : {1, 2, 5}) {
        RingCase of;
        of.cp = ranks;
        of.dp = 2;
        of.zero_stage = zero_stage;
        of.recompute = recompute;
        of.sequences = {{37, 1, 8}, {23, 2}, {1, 4}, {4, 4}};
        const std::int64_t time = step_time(*plan_zigzag_step(of)->schedule, {1000, 2000, 500});
        const std::int64_t passes = recompute == Recompute::kFull ? 2 : 1;
        // At least the attention of both layers and micro-batches; five tokens leave most steps of one replica empty.
        EXPECT_GE(time, 2 * 2 * (passes * 1000 + 2000));
      }
    }
  }
}

}  // namespace
}  // namespace longhaul
