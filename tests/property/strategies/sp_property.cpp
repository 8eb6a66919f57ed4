#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/strategies/sequence_parallel/plan.h"

namespace longhaul {
namespace {

// Each token of each sequence on one rank, in order within its group; equal rows on the ranks of a group.
void check_plan(const SpPlan& plan, const std::vector<std::int64_t>& sequences) {
  std::vector<std::int64_t> next(sequences.size(), 0);
  RC_ASSERT(static_cast<std::int64_t>(plan.groups.size()) * plan.group_size == plan.ranks);
  for (std::int64_t rank = 0; rank < plan.ranks; ++rank) {
    std::int64_t rows = 0;
    for (const SequenceRows& run : plan.rows[static_cast<std::size_t>(rank)]) {
      const auto sequence = static_cast<std::size_t>(run.sequence);
      RC_ASSERT(run.first == next[sequence]);
      RC_ASSERT(run.tokens >= 0);
      RC_ASSERT(run.padding >= 0);
      RC_ASSERT(run.padding == 0 || run.first + run.tokens == sequences[sequence]);
      next[sequence] += run.tokens;
      rows += run.tokens + run.padding;
    }
    RC_ASSERT(rows == plan.group_of(rank).rows_per_rank);
  }
  RC_ASSERT(next == sequences);
}

RC_GTEST_PROP(SpPlan, EveryTokenOnce, ()) {
  const std::int64_t ranks = std::int64_t{1} << *rc::gen::inRange(0, 6);
  const auto count = *rc::gen::inRange<std::size_t>(1, 40);
  const auto sequences = *rc::gen::container<std::vector<std::int64_t>>(count, rc::gen::inRange<std::int64_t>(1, 2000));
  check_plan(*plan_ulysses(sequences, ranks, 32, 8), sequences);
  check_plan(*plan_basp(sequences, ranks, 32, 8, BaspBatchPolicy::kGcd), sequences);
  const auto batch = static_cast<std::int64_t>(count);
  const auto rejecting = plan_basp(sequences, ranks, 32, 8);
  RC_ASSERT(rejecting.has_value() == (ranks % batch == 0));
  if (rejecting) check_plan(*rejecting, sequences);
  const auto padded = plan_basp(sequences, ranks, 32, 8, BaspBatchPolicy::kPad);
  RC_ASSERT(padded.has_value() == (batch <= ranks));
  if (padded) check_plan(*padded, sequences);
}

}  // namespace
}  // namespace longhaul
