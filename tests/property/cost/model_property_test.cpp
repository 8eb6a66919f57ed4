// Laws of the kernel model for random sizes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

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

// Twice the same work is never faster than once: up to wave rounding, attention only adds.
RC_GTEST_PROP(KernelModel, TwiceTheAttentionIsNeverFaster, ()) {
  const KernelModel model = sample_model(sample_device("sample"));
  AttentionWork work = random_work();
  work.merge(random_work());  // ragged: a dense call has another rate
  AttentionWork twice = work;
  twice.merge(work);
  RC_ASSERT(model.attention_forward(twice, 32, 8, 128).seconds >= model.attention_forward(work, 32, 8, 128).seconds);
  RC_ASSERT(model.attention_backward(twice, 32, 8, 128).seconds >= model.attention_backward(work, 32, 8, 128).seconds);
}

// One launch over all pieces is not slower than one launch a piece set: the tail and the call are shared.
RC_GTEST_PROP(KernelModel, OneLaunchIsNotSlowerThanTwo, ()) {
  const KernelModel model = sample_model(sample_device("sample"));
  AttentionWork first = random_work();
  AttentionWork second = random_work();
  first.merge(AttentionWork(attention_work(std::vector<AttentionPieceSize>{{1, 2, 2}, {1, 2, 2}})));
  second.merge(AttentionWork(attention_work(std::vector<AttentionPieceSize>{{1, 2, 2}, {1, 2, 2}})));
  AttentionWork both = first;
  both.merge(second);
  const double apart =
      model.attention_forward(first, 32, 8, 128).seconds + model.attention_forward(second, 32, 8, 128).seconds;
  // Waves round up once instead of twice; the mean item over all rounds differently by at most one wave of it.
  const double items = static_cast<double>(both.q_tiles);
  const double one_wave = both.forward_pairs / items * 1e-10;
  RC_ASSERT(model.attention_forward(both, 32, 8, 128).seconds <= apart + one_wave);
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
}

// Whole tiles hold every pair; causal pieces never more than the square of tiles.
RC_GTEST_PROP(AttentionWork, VisitedPairsHoldThePairs, ()) {
  AttentionWork work;
  const AttentionPieceSize piece = random_piece();
  work.add(piece);
  const double square = 128.0 * 128.0 * static_cast<double>(work.q_tiles) * static_cast<double>(work.k_tiles);
  RC_ASSERT(work.forward_pairs >= work.pairs);
  RC_ASSERT(work.backward_pairs >= work.pairs);
  RC_ASSERT(work.unskipped_pairs >= work.backward_pairs);
  RC_ASSERT(work.forward_pairs <= square);
  RC_ASSERT(work.unskipped_pairs <= square);
}

}  // namespace
}  // namespace longhaul
