// FlashCP and its baselines against flashcp.md 1.1-1.4, 2.0-2.3 and 6.6, on schedules.
//
// H = 32 heads of D = 128, no GQA, bf16 (fig. 6's shape): llama-7b. Volumes are bytes received per rank and layer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/oracle/study/observed_network.h"
#include "tests/oracle/study/oracle_case.h"

namespace longhaul::oracle {
namespace {

constexpr std::int64_t kWindow = 131072;  // C
constexpr std::int64_t kWidth = 32 * 128;

StepCase packed_step(const std::string& strategy, std::vector<std::int64_t> documents, int ranks = 8) {
  StepCase of;
  of.strategy = strategy;
  of.model = shipped_model("llama-7b");
  of.model.layers = 2;
  of.sequences = {std::move(documents)};
  of.degrees.cp = ranks;
  return of;
}

// Documents of mixed lengths that fill C and are multiples of 2N = 16, so that no scheme pads.
std::vector<std::int64_t> mixed_documents() {
  std::vector<std::int64_t> documents{40960, 20480, 16384, 9600, 8192, 6400, 4800, 4096, 3200, 2048, 1600, 1024};
  std::int64_t left = kWindow;
  for (const std::int64_t tokens : documents) left -= tokens;
  for (; left > 0; left -= documents.back()) documents.push_back(std::min<std::int64_t>(left, 784));
  return documents;
}

// Documents of 2,000 to 6,300 tokens that fill C: no long one that must be cut over all ranks.
std::vector<std::int64_t> short_documents() {
  std::vector<std::int64_t> documents;
  std::int64_t left = kWindow;
  for (std::int64_t i = 0; left > 0; ++i) {
    documents.push_back(std::min<std::int64_t>(left, 2000 + i * 1237 % 4300));
    left -= documents.back();
  }
  return documents;
}

std::int64_t causal(std::int64_t tokens) { return tokens * (tokens + 1) / 2; }

Volume context_volume(const Schedule& schedule, int rank, Pass pass) {
  return volume_of(schedule, rank, {"context", 1, pass, {}}, 8);
}

// Tokens of rank `rank` in shards that do not end with the last token of their document (S^ of eq. 5).
std::int64_t sendable_tokens(const Schedule& schedule, int rank) {
  std::int64_t tokens = 0;
  for (const RowMapPtr& rows : rows_of(schedule, rank, 0)) {
    for (const RowRun& run : rows->runs) {
      if (run.document < 0) continue;
      const std::int64_t length = schedule.batch->documents[static_cast<std::size_t>(run.document)];
      if (run.first + run.count < length) tokens += run.count;
    }
  }
  return tokens;
}

// Eq. 4: V_static = 4 (sum d / N) H D (N-1) elements, forward gathers of K and V and backward reduce-scatters of dK and
// dV: at C = 128K and N = 8, 4 x 16384 x 4096 x 7 = 1,879,048,192. 6.6: 1.879e9 bytes received per direction.
TEST(FlashCpScheduleOracle, StaticVolumeIsEq4) {
  for (const char* strategy : {"allgather-cp", "per-doc-cp"}) {
    const auto schedule = schedule_of(packed_step(strategy, mixed_documents()));
    for (int rank = 0; rank < 8; ++rank) {
      const std::int64_t forward = context_volume(*schedule, rank, Pass::kForward).leaves_gpu;
      const std::int64_t backward = context_volume(*schedule, rank, Pass::kBackward).leaves_gpu;
      EXPECT_EQ((forward + backward) / 2, 4 * (kWindow / 8) * kWidth * 7) << strategy;
      EXPECT_EQ(forward, backward);
      EXPECT_EQ(fmt::format("{:.3e}", static_cast<double>(forward)), "1.879e+09");
    }
  }
}

// Eq. 5: V_flash = 4 B_max H D (N-1) elements, B_max the most tokens of one rank in shards that are not the last of
// their document. Under full recompute the forward volume comes once more (section 2).
TEST(FlashCpScheduleOracle, ShardingAwareVolumeIsEq5) {
  for (const bool long_ones : {false, true}) {
    for (const char* rule : {"equalise", "equalise-swap", "naive"}) {
      StepCase of = packed_step("flashcp", long_ones ? mixed_documents() : short_documents());
      of.options["cut_rule"] = rule;
      of.recompute = long_ones ? Recompute::kNone : Recompute::kFull;
      const auto schedule = schedule_of(of);
      std::int64_t most = 0;
      for (int rank = 0; rank < 8; ++rank) most = std::max(most, sendable_tokens(*schedule, rank));
      EXPECT_GT(most, 0) << rule;
      EXPECT_TRUE(long_ones || most < kWindow / 8) << rule;  // less than eq. 4
      for (int rank = 0; rank < 8; ++rank) {
        const Volume forward = context_volume(*schedule, rank, Pass::kForward);
        const Volume backward = context_volume(*schedule, rank, Pass::kBackward);
        EXPECT_EQ(forward.calls, 1);  // K and V in one buffer (1.2)
        EXPECT_EQ(forward.leaves_gpu, 2 * 7 * most * kWidth * 2) << rule;
        EXPECT_EQ((forward.leaves_gpu + backward.leaves_gpu) / 2, 4 * most * kWidth * 7) << rule;
        const Volume again = context_volume(*schedule, rank, Pass::kRecompute);
        EXPECT_EQ(again, of.recompute == Recompute::kFull ? forward : Volume{});
      }
    }
  }
}

// Eq. 2 and 6.6: every rank owns C/N tokens; the work of all ranks is sum w(d), whatever the scheme.
TEST(FlashCpScheduleOracle, TokensAreEqualAndWorkSums) {
  std::int64_t work = 0;
  for (const std::int64_t tokens : mixed_documents()) work += causal(tokens);
  for (const char* strategy : {"allgather-cp", "per-doc-cp", "flashcp", "zigzag-cp"}) {
    const auto schedule = schedule_of(packed_step(strategy, mixed_documents()));
    std::int64_t forward = 0, backward = 0, most = 0;
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(tokens_of(*schedule, rank, 1), kWindow / 8) << strategy;
      const std::int64_t pairs = pairs_of(*schedule, rank, Pass::kForward, 1);
      forward += pairs;
      most = std::max(most, pairs);
      backward += pairs_of(*schedule, rank, Pass::kBackward, 1);
    }
    EXPECT_EQ(forward, work) << strategy;
    EXPECT_EQ(backward, work) << strategy;
    // Documents are multiples of 2N: Per-Doc and zigzag are balanced exactly (2.0), FlashCP up to its limit R = 1.05.
    const double imbalance = static_cast<double>(most) * 8 / static_cast<double>(work);
    if (strategy == std::string("per-doc-cp") || strategy == std::string("zigzag-cp")) {
      EXPECT_EQ(most * 8, work);
    } else if (strategy == std::string("flashcp")) {
      EXPECT_LE(imbalance, 1.05);
    } else {
      EXPECT_GT(imbalance, 1.05);
    }
  }
}

// 6.6: 16 documents of 8K, N = 8: two whole documents a rank, zero traffic, R = 1. Per-Doc gathers everything. On the
// simulated network of eight H100 not one byte of the context group moves.
TEST(FlashCpScheduleOracle, SixteenDocumentsOfEightThousandMoveNothing) {
  const Cluster cluster = shipped_cluster("dgx-h100-ndr", 8);
  const KernelModel kernels = kernels_of(cluster);
  const std::vector<std::int64_t> documents(16, 8192);
  for (const char* strategy : {"flashcp", "per-doc-cp"}) {
    const auto schedule = schedule_of(packed_step(strategy, documents));
    const bool flash = strategy == std::string("flashcp");
    const std::int64_t direction = 7 * (kWindow / 8) * 2 * kWidth * 2;
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(context_volume(*schedule, rank, Pass::kForward).leaves_gpu, flash ? 0 : direction);
      EXPECT_EQ(context_volume(*schedule, rank, Pass::kBackward).leaves_gpu, flash ? 0 : direction);
      EXPECT_EQ(pairs_of(*schedule, rank, Pass::kForward, 0), 2 * causal(8192));
      if (!flash) continue;
      for (const RowMapPtr& rows : rows_of(*schedule, rank, 0)) {
        ASSERT_EQ(rows->runs.size(), 2u);
        for (const RowRun& run : rows->runs) EXPECT_EQ(run.first, 0);
      }
    }
    ObservedNetwork network(cluster);
    const Totals totals = simulate(*schedule, KernelDurations(kernels), network);
    const std::int64_t layers = 2;
    EXPECT_EQ(network.bytes["context"].received, flash ? 0 : 8 * layers * 2 * direction);
    EXPECT_GT(totals.step, Time::zero());
  }
}

// 6.6: one document = C: FlashCP degenerates to Per-Doc, saving 0; forward FLOPs 4 H D C (C+1)/2 = 1.407e14 in all and
// 1.76e13 on each rank.
TEST(FlashCpScheduleOracle, OneDocumentIsPerDoc) {
  const auto flash = schedule_of(packed_step("flashcp", {kWindow}));
  const auto per_doc = schedule_of(packed_step("per-doc-cp", {kWindow}));
  std::int64_t all = 0;
  for (int rank = 0; rank < 8; ++rank) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      const Volume volume = context_volume(*flash, rank, pass);
      EXPECT_EQ(volume.leaves_gpu, context_volume(*per_doc, rank, pass).leaves_gpu);
      EXPECT_EQ(volume.leaves_gpu, 7 * (kWindow / 8) * 2 * kWidth * 2);
    }
    const std::int64_t pairs = pairs_of(*flash, rank, Pass::kForward, 0);
    EXPECT_EQ(pairs, causal(kWindow) / 8);
    EXPECT_EQ(pairs, pairs_of(*per_doc, rank, Pass::kForward, 0));
    EXPECT_EQ(rows_of(*flash, rank, 0).front()->runs, rows_of(*per_doc, rank, 0).front()->runs);
    EXPECT_EQ(fmt::format("{:.2e}", static_cast<double>(4 * kWidth * pairs)), "1.76e+13");
    all += pairs;
  }
  EXPECT_EQ(fmt::format("{:.3e}", static_cast<double>(4 * kWidth * all)), "1.407e+14");
}

// 2.3, zigzag, N steps, L = C/N: step 0 is causal on the own two chunks, L^2/2 + L/2 pairs; every other step has L^2/2,
// on every rank: the ratio of the slowest rank to the mean is 1 in each step.
TEST(FlashCpScheduleOracle, ZigzagStepsAreEqual) {
  for (const int ranks : {2, 4, 8}) {
    const std::int64_t shard = kWindow / ranks;
    const auto schedule = schedule_of(packed_step("zigzag-cp", {kWindow}, ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
        const std::vector<std::int64_t> steps = pairs_of_ops(*schedule, rank, pass, 0);
        ASSERT_EQ(steps.size(), static_cast<std::size_t>(ranks));
        EXPECT_EQ(steps[0], shard * shard / 2 + shard / 2);
        for (std::size_t t = 1; t < steps.size(); ++t) EXPECT_EQ(steps[t], shard * shard / 2);
      }
    }
  }
}

// 2.0 and 2.3, ring bytes with M = 2 (C/N) Hkv D b: K and V make N-1 hops forward, (N-1) M. Backward they make N-1 hops
// again and dK, dV N hops to come home (bf16, so N M; the published code sends them in fp32: (3N-1) M in all).
TEST(FlashCpScheduleOracle, RingBytes) {
  for (const int ranks : {2, 8}) {
    const auto schedule = schedule_of(packed_step("zigzag-cp", mixed_documents(), ranks));
    const std::int64_t m = 2 * (kWindow / ranks) * kWidth * 2;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(context_volume(*schedule, rank, Pass::kForward).leaves_gpu, (ranks - 1) * m);
      EXPECT_EQ(context_volume(*schedule, rank, Pass::kBackward).leaves_gpu, (2 * ranks - 1) * m);
    }
  }
}

}  // namespace
}  // namespace longhaul::oracle
