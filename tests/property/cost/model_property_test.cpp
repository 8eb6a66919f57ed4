// Laws of the kernel model for random sizes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/cost/attention_span.h"
#include "tests/unit/cost/sample_calibration.h"

namespace longhaul {
namespace {

std::int64_t log_uniform(std::int64_t most) {
  const int bits = *rc::gen::inRange(0, 18);
  return std::min<std::int64_t>(most,
                                *rc::gen::inRange<std::int64_t>(std::int64_t{1} << bits, std::int64_t{2} << bits));
}

AttentionPieceSize random_piece() {
  const std::int64_t q = log_uniform(1 << 15);
  const std::int64_t k = q + *rc::gen::inRange<std::int64_t>(0, 1 << 15);
  return {q, k, q * (k - q) + q * (q + 1) / 2};
}

AttentionWork random_work() {
  AttentionWork work;
  const int pieces = *rc::gen::inRange(1, 20);
  for (int i = 0; i < pieces; ++i) work.add(random_piece());
  return work;
}

void check(const Estimate& estimate) {
  RC_ASSERT(estimate.low > 0);
  RC_ASSERT(estimate.low <= estimate.seconds);
  RC_ASSERT(estimate.seconds <= estimate.high);
}

RC_GTEST_PROP(KernelModel, EveryIntervalHoldsItsEstimate, ()) {
  const KernelModel model = sample_model(sample_device(*rc::gen::element<std::string>("sample", "other")));
  const AttentionWork work = random_work();
  check(model.gemm(GemmPass::kForward, log_uniform(1 << 17), log_uniform(1 << 17), log_uniform(1 << 17)));
  check(model.attention_forward(work, 32, 8, 128));
  check(model.attention_backward(work, 32, 8, 64));
  check(model.elementwise(Bytes{log_uniform(1 << 17) * 4096}));
  check(model.copy(CopyKind::kDeviceToHost, Bytes{log_uniform(1 << 17) * 4096}));
}

// Every term grows with each of m, n and k, waves included.
RC_GTEST_PROP(KernelModel, MoreGemmIsNeverFaster, ()) {
  const KernelModel model = sample_model(sample_device("sample"));
  const std::int64_t m = log_uniform(1 << 16);
  const std::int64_t n = log_uniform(1 << 16);
  const std::int64_t k = log_uniform(1 << 16);
  const double base = model.gemm(GemmPass::kForward, m, n, k).seconds;
  const std::int64_t more = *rc::gen::inRange<std::int64_t>(0, 1000);
  RC_ASSERT(model.gemm(GemmPass::kForward, m + more, n, k).seconds >= base);
  RC_ASSERT(model.gemm(GemmPass::kForward, m, n + more, k).seconds >= base);
  RC_ASSERT(model.gemm(GemmPass::kForward, m, n, k + more).seconds >= base);
}

// Twice the same list is never faster than once: attention only adds. (The first list is ragged, so that the second
// call is of the same form.)
RC_GTEST_PROP(KernelModel, TwiceTheAttentionIsNeverFaster, ()) {
  const KernelModel model = sample_model(sample_device("sample"));
  AttentionWork work = random_work();
  work.merge(attention_work(std::vector<AttentionPieceSize>{{1, 2, 2}, {3, 5, 12}}));
  AttentionWork twice = work;
  twice.merge(work);
  RC_ASSERT(model.attention_forward(twice, 32, 8, 128).seconds >= model.attention_forward(work, 32, 8, 128).seconds);
  RC_ASSERT(model.attention_backward(twice, 32, 8, 128).seconds >= model.attention_backward(work, 32, 8, 128).seconds);
}

// The span of a launch lies between an even share (and the longest item) and Graham's bound for list schedules: even
// share plus the longest item (R. L. Graham, 1969: (2 - 1/m) of the best).
RC_GTEST_PROP(AttentionSpan, IsAListSchedule, ()) {
  const AttentionWork work = random_work();
  AttentionItems items;
  items.forward = *rc::gen::arbitrary<bool>();
  items.heads = *rc::gen::inRange(1, 40);
  items.order = *rc::gen::arbitrary<bool>() ? ItemOrder::kGrid : ItemOrder::kLongestFirst;
  const int multiprocessors = *rc::gen::inRange(1, 150);
  const double count = static_cast<double>(items.forward ? work.q_tiles : work.k_tiles);
  const double visited = items.forward ? work.forward_tiles : work.backward_tiles;
  const double even = static_cast<double>(items.heads) * (visited + kItemTiles * count) / multiprocessors;
  const double longest = (items.forward ? work.longest_forward_tile : work.longest_backward_tile) + kItemTiles;
  const double span = attention_span(work, items, multiprocessors);
  RC_ASSERT(span >= std::max(even, longest) * (1 - 1e-12));
  RC_ASSERT(span <= (even + longest) * (1 + 1e-12));
}

// Sums of tiles equal the tiles counted one by one.
RC_GTEST_PROP(PieceTiles, SumsEqualTheCount, ()) {
  const PieceTiles piece = tiles_of(random_piece());
  double forward = 0;
  double backward = 0;
  for (std::int64_t i = 0; i < piece.q_tiles; ++i) forward += piece.forward_cost(i);
  for (std::int64_t i = 0; i < piece.k_tiles; ++i) backward += piece.backward_cost(i);
  RC_ASSERT(piece.forward_tiles() == forward);
  RC_ASSERT(piece.backward_tiles() == backward);
}

RC_GTEST_PROP(AttentionWork, MergeEqualsAddingAll, ()) {
  AttentionWork one_by_one;
  AttentionWork merged;
  const int parts = *rc::gen::inRange(1, 5);
  for (int part = 0; part < parts; ++part) {
    AttentionWork some;
    const int pieces = *rc::gen::inRange(1, 6);
    for (int i = 0; i < pieces; ++i) {
      const AttentionPieceSize piece = random_piece();
      one_by_one.add(piece);
      some.add(piece);
    }
    merged.merge(some);
  }
  RC_ASSERT(merged.pieces == one_by_one.pieces);
  RC_ASSERT(merged.q_rows == one_by_one.q_rows);
  RC_ASSERT(merged.k_rows == one_by_one.k_rows);
  RC_ASSERT(merged.q_tiles == one_by_one.q_tiles);
  RC_ASSERT(merged.k_tiles == one_by_one.k_tiles);
  RC_ASSERT(merged.pairs == one_by_one.pairs);  // integers below 2^53
  RC_ASSERT(merged.longest_forward_tile == one_by_one.longest_forward_tile);
  RC_ASSERT(merged.longest_backward_tile == one_by_one.longest_backward_tile);
  RC_ASSERT(merged.equal == one_by_one.equal);
  RC_ASSERT(merged.mask() == one_by_one.mask());
  RC_ASSERT(merged.kept_count() == one_by_one.kept_count());
  for (std::size_t i = 0; i < merged.kept_count(); ++i) RC_ASSERT(merged.kept(i) == one_by_one.kept(i));
}

// Whole tiles hold every pair; causal pieces never more than the square of tiles.
RC_GTEST_PROP(AttentionWork, VisitedTilesHoldThePairs, ()) {
  AttentionWork work;
  work.add(random_piece());
  RC_ASSERT(work.forward_tiles * 128 * 128 >= work.pairs);
  RC_ASSERT(work.backward_tiles * 128 * 128 >= work.pairs);
  RC_ASSERT(work.unskipped_tiles >= work.backward_tiles);
  RC_ASSERT(work.unskipped_tiles >= work.forward_tiles);
}

}  // namespace
}  // namespace longhaul
