// What bounds a real step: a ring over two nodes waits for the NICs, though few ranks send over them.
#include <gtest/gtest.h>

#include <string>

#include "sim/analysis/summary.h"
#include "sim/executor/simulate.h"
#include "sim/study/entry_run.h"

namespace longhaul {
namespace {

// 1024 rows a rank of a model without grouped heads: a block of 16 MB a hop, 0.35 ms over a NIC, 15 hops a layer and
// pass, beside GEMMs of 0.6 ms a layer.
std::string ring_study(const std::string& topology) {
  return R"({"schema": "study/1", "name": "ring", "topology": )" + topology + R"(, "gpus": 16, "model": "llama-7b",
             "documents": {"explicit": [[16384]]}, "training": {"zero_stage": 3},
             "strategies": ["zigzag-cp"], "baseline": "zigzag-cp"})";
}

struct Ran {
  Totals totals;
  StepSummary summary;
};

Ran run_ring(const std::string& topology) {
  const auto json = parse_json(ring_study(topology), "ring.json");
  const auto study = parse_study(*json, "ring.json", study_options());
  const CaseSetup setup = *set_up_case(study->cases[0], study->file);
  const StrategyEntry& entry = study->cases[0].strategies[0];
  const auto planned = plan_entry(setup, entry, *entry_degrees(setup, entry), 0);
  Ran ran;
  ran.totals = simulate(*planned->schedule, setup.cluster, setup.kernels, {});
  ran.summary = summarize(ran.totals, *planned->schedule, study->cases[0].training, setup.cluster, setup.kernels);
  return ran;
}

// Ranks 7 and 15 send blocks over a NIC, the others over NVLink only; each link carries the same blocks, a NIC at 48
// GB/s, NVLink at 370.8. What rank 0 sends takes longer inside its node, and still it waits for the NICs.
TEST(BoundByOfStrategy, ARingOverTwoNodesIsBoundBetweenThem) {
  const Ran ran = run_ring(R"("dgx-h200-ndr")");
  const RankTotals& inner = ran.totals.ranks[0];
  EXPECT_GT(static_cast<double>(inner.sent_intra_node) / 370.8, static_cast<double>(inner.sent_inter_node) / 48);
  EXPECT_GT(ran.totals.ranks[7].sent_inter_node, inner.sent_inter_node);
  EXPECT_EQ(ran.summary.bound_by, "exposed communication between nodes");
}

// With NICs a hundred times as fast the same ring waits for NVLink.
TEST(BoundByOfStrategy, WithFastNicsItIsBoundInsideTheNodes) {
  const Ran ran = run_ring(R"({"base": "dgx-h200-ndr", "scale_network": 100, "scale_nvlink": 0.05})");
  EXPECT_EQ(ran.summary.bound_by, "exposed communication inside a node");
}

}  // namespace
}  // namespace longhaul
