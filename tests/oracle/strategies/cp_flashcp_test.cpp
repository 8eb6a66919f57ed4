// Closed forms and known answers of FlashCP and its baselines (flashcp.md 1.1-1.4, 2, 6.6).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "sim/strategies/context_parallel/flashcp.h"

namespace longhaul {
namespace {

using Documents = std::vector<PlannedDocument>;

Documents documents_of(const std::vector<std::int64_t>& lengths) {
  Documents documents;
  for (std::size_t i = 0; i < lengths.size(); ++i) documents.push_back({static_cast<DocumentId>(i), lengths[i]});
  return documents;
}

// Eq. 3: query p+i of a shard sees p+i+1 keys.
TEST(FlashCpOracle, ShardPairsAreEq3) {
  for (std::int64_t prefix = 0; prefix < 12; ++prefix) {
    for (std::int64_t tokens = 0; tokens < 12; ++tokens) {
      std::int64_t pairs = 0;
      for (std::int64_t i = 0; i < tokens; ++i) pairs += prefix + i + 1;
      EXPECT_EQ(shard_pairs(prefix, tokens), pairs);
    }
    EXPECT_EQ(causal_pairs(prefix), shard_pairs(0, prefix));
  }
}

// Eq. 4 and 5 in elements: C = 131072, N = 8, H = 32, D = 128. Static: 4 * 16384 * 32 * 128 * 7 = 1,879,048,192.
TEST(FlashCpOracle, VolumesAreEq4AndEq5) {
  EXPECT_EQ(gather_scatter_elements(131072 / 8, 8, 32, 128), 1879048192);
  // B_max = 1000 tokens: 4 * 1000 * 32 * 128 * 7.
  EXPECT_EQ(gather_scatter_elements(1000, 8, 32, 128), 114688000);
  // 6.6: bytes received per direction, 1.879e9: (N-1) M, M = 2 (C/N) Hkv D b.
  EXPECT_EQ(kv_gather_bytes(131072 / 8, 8, 32 * 128, 2), 1879048192);
}

// 6.6: one document of 128K, H = 32, D = 128: 1.407e14 forward FLOPs, 1.76e13 on each of 8 ranks.
TEST(FlashCpOracle, ForwardFlops) {
  const CpLoads loads = cp_loads(*plan_per_doc_cp(documents_of({131072}), 8));
  EXPECT_NEAR(attention_forward_flops(loads.pairs, 32 * 128), 1.407e14, 0.0005e14);
  EXPECT_NEAR(attention_forward_flops(loads.pairs_max, 32 * 128), 1.76e13, 0.005e13);
}

// 6.6: 16 documents of 8K on 8 ranks: two whole documents a rank, zero traffic, R = 1; Per-Doc gathers everything.
TEST(FlashCpOracle, SixteenEqualDocumentsStayWhole) {
  const Documents documents = documents_of(std::vector<std::int64_t>(16, 8192));
  for (const auto rule : {FlashCutRule::kEqualise, FlashCutRule::kEqualiseSwap, FlashCutRule::kNaive}) {
    FlashCpOptions options;
    options.cut_rule = rule;
    const CpPlan plan = *plan_flashcp(documents, 8, options);
    const CpLoads loads = cp_loads(plan);
    EXPECT_EQ(loads.nonlast_max, 0);
    EXPECT_EQ(loads.need_max, 0);
    EXPECT_EQ(loads.imbalance, 1);
    EXPECT_EQ(loads.padding, 0);
    EXPECT_TRUE(plan.per_doc_documents.empty());
    for (const auto& shards : plan.ranks) {
      ASSERT_EQ(shards.size(), 2u);
      for (const Shard& shard : shards) EXPECT_EQ(shard.tokens, 8192);
    }
  }
  EXPECT_EQ(cp_loads(*plan_per_doc_cp(documents, 8)).nonlast_max, 16384);
}

// 6.6: one document as long as the sequence degenerates to Per-Doc: saving 0.
TEST(FlashCpOracle, OneDocumentIsPerDoc) {
  const Documents documents = documents_of({131072});
  const CpPlan flash = *plan_flashcp(documents, 8);
  const CpLoads loads = cp_loads(flash);
  EXPECT_EQ(flash.ranks, plan_per_doc_cp(documents, 8)->ranks);
  EXPECT_EQ(loads.nonlast_max, 131072 / 8);
  EXPECT_EQ(loads.imbalance, 1);
}

// 6.6: two documents of C/2 on two ranks: zero traffic.
TEST(FlashCpOracle, TwoHalvesOnTwoRanks) {
  const CpLoads loads = cp_loads(*plan_flashcp(documents_of({65536, 65536}), 2));
  EXPECT_EQ(loads.nonlast_max, 0);
  EXPECT_EQ(loads.imbalance, 1);
}

// 1.4: of a Per-Doc document only rank 0 saves, one of its two chunks; rank i needs [0, (2N-i) c) less its two chunks.
TEST(FlashCpOracle, PerDocSavesOnRankZeroOnly) {
  const std::int64_t ranks = 8, chunk = 10;
  const CpLoads loads = cp_loads(*plan_per_doc_cp(documents_of({2 * ranks * chunk}), ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const CpRankLoad& load = loads.ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(load.nonlast, rank == 0 ? chunk : 2 * chunk);
    EXPECT_EQ(load.need, (2 * ranks - rank) * chunk - 2 * chunk);
    EXPECT_EQ(load.pairs * ranks, loads.pairs);
  }
  // 1.6: the worst rank of Per-Doc receives 0.875 of C at N = 8.
  EXPECT_EQ(loads.need_max * 8, 7 * 2 * ranks * chunk);
}

// 2.3 and 6.6: contiguous shards of one causal document: the last rank has (N-1) L^2 + L(L+1)/2 pairs against a mean of
// L (NL+1)/2, so max/mean = ((2N-1) L + 1) / (NL + 1), which tends to (2N-1)/N. Zigzag is exact.
TEST(FlashCpOracle, PlainRingRatioAndZigzag) {
  for (const std::int64_t ranks : {2, 4, 8, 16}) {
    const std::int64_t shard = 4096;
    const Documents documents = documents_of({ranks * shard});
    const CpLoads plain = cp_loads(*plan_contiguous_cp(documents, ranks));
    EXPECT_EQ(plain.pairs_max * (ranks * shard + 1) * ranks, plain.pairs * ((2 * ranks - 1) * shard + 1));
    EXPECT_NEAR(plain.imbalance, static_cast<double>(2 * ranks - 1) / static_cast<double>(ranks), 1e-3);
    EXPECT_EQ(cp_loads(*plan_zigzag_cp(documents, ranks)).imbalance, 1);
    EXPECT_EQ(cp_loads(*plan_allgather_cp(documents, ranks)).imbalance, 1);
  }
}

// 1.3: build states whose exact answer is known and get it back.
TEST(FlashCpOracle, ExchangeSolvesTokensAndPairs) {
  int solved = 0;
  for (std::int64_t a = 20; a <= 60; a += 8) {
    for (std::int64_t b = 80; b <= 200; b += 24) {
      for (std::int64_t keep_a = 0; keep_a <= a; keep_a += 7) {
        for (std::int64_t keep_b = 0; keep_b <= b; keep_b += 11) {
          if (keep_a == keep_b) continue;
          const std::int64_t other_tokens = 13, other_pairs = 91;
          TwoDocumentState state;
          state.a = a;
          state.b = b;
          state.rank_tokens = a + other_tokens;
          state.rank_pairs = causal_pairs(a) + other_pairs;
          state.target_tokens = other_tokens + keep_a + (b - keep_b);
          state.target_pairs =
              static_cast<double>(other_pairs + causal_pairs(keep_a) + shard_pairs(keep_b, b - keep_b));
          const auto exchange = two_document_exchange(state);
          ASSERT_TRUE(exchange.has_value());
          EXPECT_EQ(exchange->keep_a, keep_a);
          EXPECT_EQ(exchange->keep_b, keep_b);
          ++solved;
        }
      }
    }
  }
  EXPECT_GT(solved, 500);
}

// 1.3 with a clamp: among all cuts that give the target tokens, none comes nearer in pairs.
TEST(FlashCpOracle, ExchangeIsNearestOfAllCuts) {
  for (std::int64_t target = 5; target <= 75; target += 5) {
    const TwoDocumentState state{target, 900, 25, 400, 20, 60};
    const auto exchange = two_document_exchange(state);
    double best = -1;
    const auto gap = [&](std::int64_t keep_a, std::int64_t keep_b) {
      const std::int64_t pairs =
          state.rank_pairs - causal_pairs(state.a) + causal_pairs(keep_a) + shard_pairs(keep_b, state.b - keep_b);
      return std::abs(static_cast<double>(pairs) - state.target_pairs);
    };
    for (std::int64_t keep_a = 0; keep_a <= state.a; ++keep_a) {
      for (std::int64_t keep_b = 0; keep_b <= state.b; ++keep_b) {
        if (state.rank_tokens - state.a + keep_a + state.b - keep_b != target) continue;
        if (best < 0 || gap(keep_a, keep_b) < best) best = gap(keep_a, keep_b);
      }
    }
    if (target == state.rank_tokens - state.a + state.b) {
      EXPECT_FALSE(exchange.has_value());  // k = 0: no work can be moved
    } else {
      ASSERT_TRUE(exchange.has_value());
      EXPECT_EQ(gap(exchange->keep_a, exchange->keep_b), best) << target;
    }
  }
}

}  // namespace
}  // namespace longhaul
