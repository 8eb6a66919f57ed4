// The plan that flashcp picks, over 100 seeded sequences of 128K tokens each of three length distributions, on 4, 8 and
// 16 H100: within the imbalance limit, no slower in modelled time than Algorithm 1 with either cut rule of flashcp.md
// 1.6, and saving at least as much traffic as its naive rule. Times are those of one layer with 32 heads of 128 (fig.
// 6).
#include <gtest/gtest.h>

#include <cstdio>

#include "sim/core/rng.h"
#include "sim/strategies/context_parallel/flashcp.h"
#include "sim/strategies/context_parallel/modelled.h"
#include "sim/workload/documents.h"
#include "tests/oracle/study/oracle_case.h"

namespace longhaul::oracle {
namespace {

constexpr std::int64_t kWindow = 131072;
constexpr std::int64_t kSequences = 100;
constexpr double kLimit = 1.05;

Batch sampled(const std::string& lengths) {
  Errors errors;
  const auto table = find_lengths(Json(lengths), "", "", errors);
  EXPECT_TRUE(table.has_value()) << lengths;
  Rng rng(1, "flashcp choice/" + lengths);
  return sampled_batch(*table, {}, kWindow, kSequences, rng);
}

double saving(const CpPlan& plan) {
  return 1 - static_cast<double>(cp_loads(plan).nonlast_max) / static_cast<double>(plan.padded_tokens_per_rank);
}

struct Sums {
  double imbalance = 0, saving = 0, seconds = 0;
  void add(const CpPlan& plan, double layer) {
    imbalance += cp_loads(plan).imbalance / kSequences;
    saving += longhaul::oracle::saving(plan) / kSequences;
    seconds += layer / kSequences;
  }
  void print(const char* name) const {
    std::printf("  %-16s imbalance %.3f, saving %.3f, %.2f ms\n", name, imbalance, saving, seconds * 1e3);
  }
};

void check(const std::string& lengths, int ranks) {
  const Cluster cluster = shipped_cluster("dgx-h100-ndr", ranks);
  const KernelModel kernels = kernels_of(cluster);
  const Batch batch = sampled(lengths);
  StrategyRequest request;
  request.model = shipped_model("llama-7b");
  request.degrees.cp = request.ranks = ranks;
  request.cluster = &cluster;
  request.kernels = &kernels;
  const CpClock clock(request);
  const CpScore score = [&](const CpPlan& plan) { return clock.layer_seconds(plan, CpTraffic::kNonlast, false); };
  const auto by_rule = [&](const std::vector<PlannedDocument>& documents, FlashCutRule rule) {
    FlashCpOptions options;
    options.imbalance_limit = kLimit;
    options.cut_rule = rule;
    return *plan_flashcp(documents, ranks, options);
  };
  Sums chosen, equalise, swapped, naive, per_doc;
  for (const Sequence& sequence : batch.sequences) {
    const std::vector<PlannedDocument> documents = sequence_documents(batch, sequence);
    const CpPlan best = *plan_flashcp_by_time(documents, ranks, {}, {}, score);
    const CpPlan a = by_rule(documents, FlashCutRule::kEqualise);
    const CpPlan b = by_rule(documents, FlashCutRule::kEqualiseSwap);
    const CpPlan c = by_rule(documents, FlashCutRule::kNaive);
    EXPECT_LE(cp_loads(best).imbalance, kLimit);
    EXPECT_LE(score(best), score(a));
    EXPECT_LE(score(best), score(b));
    chosen.add(best, score(best));
    equalise.add(a, score(a));
    swapped.add(b, score(b));
    naive.add(c, score(c));
    const CpPlan cut = *plan_per_doc_cp(documents, ranks);
    per_doc.add(cut, clock.layer_seconds(cut, CpTraffic::kFull, false));
  }
  std::printf("%s, %d ranks\n", lengths.c_str(), ranks);
  chosen.print("chosen");
  equalise.print("equalise");
  swapped.print("equalise-swap");
  naive.print("naive");
  per_doc.print("per-doc-cp");
  EXPECT_GE(chosen.saving, naive.saving);
}

class FlashCpChoice : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(FlashCpChoice, IsBalancedSavesAndIsFast) { check(std::get<0>(GetParam()), std::get<1>(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Data, FlashCpChoice,
                         testing::Combine(testing::Values("wlb", "pile-like", "prolong"), testing::Values(4, 8, 16)));

}  // namespace
}  // namespace longhaul::oracle
