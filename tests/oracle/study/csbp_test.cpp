// CSBP and token-offset CP against csbp.md 2.2, 2.3, 4 and 5, on schedules.
//
// One document of L = 262144 tokens in blocks of b = 256 (the published recipe, 7.1; section 4 prints no L); Hq 32,
// Hkv 8, d 128 as in section 5's first worked row: llama3-8b.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/oracle/study/oracle_case.h"

namespace longhaul::oracle {
namespace {

constexpr std::int64_t kLength = 262144, kBlock = 256;

StepCase diffusion_step(const std::string& strategy, int ranks, Recompute recompute = Recompute::kNone) {
  StepCase of;
  of.strategy = strategy;
  of.model = shipped_model("llama3-8b");
  of.model.layers = 2;
  of.sequences = {{kLength}};
  of.objective = {ObjectiveKind::kBlockDiffusion, kBlock};
  of.degrees.cp = ranks;
  of.recompute = recompute;
  return of;
}

// Section 4. CSBP with 2P | N: L(L+b)/P on every rank. Token-offset with contiguous clean shards:
// L(L+b)/(2P) + b^2 S(rn, (r+1)n), n = N/P, S(a,z) = (z(z+1) - a(a+1))/2; max/mean 1.437 at P = 8 and 1.468 at P = 16
// (printed cut, not rounded). 2.2: all ranks together L(L+b).
TEST(CsbpScheduleOracle, PairsPerRankAreSection4) {
  for (const int ranks : {8, 16}) {
    const auto csbp = schedule_of(diffusion_step("csbp", ranks));
    const auto offset = schedule_of(diffusion_step("bd-offset-cp", ranks));
    const std::int64_t n = kLength / kBlock / ranks, total = kLength * (kLength + kBlock);
    std::int64_t most = 0, sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
        EXPECT_EQ(pairs_of(*csbp, rank, pass, 1) * ranks, total);  // max/mean 1.000
        const std::int64_t low = rank * n, high = low + n;
        const std::int64_t clean = kBlock * kBlock * (high * (high + 1) - low * (low + 1)) / 2;
        EXPECT_EQ(pairs_of(*offset, rank, pass, 1), total / (2 * ranks) + clean);
      }
      most = std::max(most, pairs_of(*offset, rank, Pass::kForward, 1));
      sum += pairs_of(*offset, rank, Pass::kForward, 1);
    }
    EXPECT_EQ(sum, total);
    const double ratio = static_cast<double>(most * ranks) / static_cast<double>(total);
    EXPECT_EQ(std::floor(ratio * 1000), ranks == 8 ? 1437 : 1468);
  }
}

// 2.3: 2L rows of one sample pass through the layers, 2L/P on each rank (section 4); L noisy rows pass the head.
TEST(CsbpScheduleOracle, TwiceTheRows) {
  for (const char* strategy : {"csbp", "bd-offset-cp"}) {
    const auto schedule = schedule_of(diffusion_step(strategy, 8));
    std::int64_t head_rows = 0;
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(tokens_of(*schedule, rank, 1), 2 * kLength / 8) << strategy;
      std::int64_t noisy = 0;
      for (const RowRun& run : rows_of(*schedule, rank, 1).front()->runs) {
        if (run.view == TokenView::kNoisy) noisy += run.count;
      }
      EXPECT_EQ(noisy, kLength / 8) << strategy;
      for_each_op(*schedule, rank, [&](const OpInstance& at) {
        if (at.op->label == "logits" && at.op->kind == OpKind::kGemm) head_rows += gemm_shape(*schedule, at).m;
      });
    }
    EXPECT_EQ(head_rows, kLength) << strategy;
  }
}

// Section 5: bytes sent per rank, layer and step, with f = (P-1)/P, G = 2 L w e (w = Hkv d) and F forward passes (2
// with recompute): CSBP f G (F+1), token-offset 2 f G (F+1), ratio 2. L = 262144, P = 8, F = 2: 2.82 and 5.64 GB.
TEST(CsbpScheduleOracle, BytesSentAreSection5) {
  for (const int ranks : {8, 16}) {
    const std::int64_t gathered = 2 * kLength * 8 * 128 * 2;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      const std::int64_t passes = recompute == Recompute::kFull ? 3 : 2;  // F + 1
      const auto csbp = schedule_of(diffusion_step("csbp", ranks, recompute));
      const auto offset = schedule_of(diffusion_step("bd-offset-cp", ranks, recompute));
      for (int rank = 0; rank < ranks; ++rank) {
        const std::int64_t sent = volume_of(*csbp, rank, {"context", 1, {}, {}}, 8).leaves_gpu;
        EXPECT_EQ(sent, gathered / ranks * (ranks - 1) * passes);
        EXPECT_EQ(volume_of(*offset, rank, {"context", 1, {}, {}}, 8).leaves_gpu, 2 * sent);
        if (ranks == 8 && passes == 3) {
          EXPECT_EQ(fmt::format("{:.2f} {:.2f}", static_cast<double>(sent) / 1e9, static_cast<double>(2 * sent) / 1e9),
                    "2.82 5.64");
        }
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::oracle
