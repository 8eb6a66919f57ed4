// Invariants of simulated steps of real strategies on two nodes of eight H200.
#include <gtest/gtest.h>

#include <map>

#include "tests/oracle/study/observed_network.h"
#include "tests/oracle/study/oracle_case.h"

namespace longhaul::oracle {
namespace {

struct Named {
  const char* strategy;
  Degrees degrees;
  std::int64_t micro_batch = 1;
  bool folds = true;  // some rank stands for others
};

// Every strategy, in layouts that fit 16 GPUs.
const std::vector<Named>& cases() {
  static const std::vector<Named> list = {
      {"ulysses", {1, 1, 16, 1}, 2},
      {"ulysses", {1, 1, 8, 2}, 2},
      {"basp", {1, 1, 16, 1}, 2},
      {"basp", {1, 1, 16, 1}, 4},
      {"1f1b", {2, 1, 8, 1}},
      {"seq1f1b", {2, 1, 8, 1}},
      {"dpp", {2, 1, 8, 1}},
      {"dpp", {4, 1, 4, 1}},
      {"data-parallel", {1, 1, 1, 16}, 1, false},
      {"allgather-cp", {1, 16, 1, 1}, 1, false},
      {"flashcp", {1, 16, 1, 1}, 1, false},
      {"per-doc-cp", {1, 8, 1, 2}, 1, false},
      {"zigzag-cp", {1, 8, 1, 2}, 1, false},
      {"ring-cp", {1, 16, 1, 1}, 1, false},
      {"te-p2p", {1, 8, 1, 2}, 1, false},
      {"te-allgather", {1, 16, 1, 1}, 1, false},
      {"wlb-cp", {1, 16, 1, 1}, 1, false},
      {"magi", {1, 16, 1, 1}, 1, false},
      {"skrull", {1, 8, 1, 2}, 1, false},
      {"hybrid-cp", {1, 16, 1, 1}, 1, false},
      {"dcp", {1, 16, 1, 1}, 1, false},
      {"csbp", {1, 16, 1, 1}, 1, false},
      {"bd-offset-cp", {1, 8, 1, 2}, 1, false},
  };
  return list;
}

StepCase step_of(const Named& named, const Cluster& cluster) {
  StepCase of;
  of.strategy = named.strategy;
  of.model = shipped_model("llama3-8b");
  of.model.layers = 4;
  of.sequences = {{9000, 5000, 2384}, {16384}, {12000, 300, 4084}, {1000, 15384}};
  if (of.strategy == "data-parallel") of.sequences.insert(of.sequences.end(), 12, {4000, 96});
  if (of.strategy == "csbp" || of.strategy == "bd-offset-cp") {
    of.objective = {ObjectiveKind::kBlockDiffusion, 64};
    of.sequences.assign(4, {16384});
  }
  of.degrees = named.degrees;
  of.micro_batch_sequences = named.micro_batch;
  of.zero_stage = 3;
  of.recompute = Recompute::kFull;
  of.cluster = &cluster;
  return of;
}

void expect_equal(const RankTotals& a, const RankTotals& b) {
  EXPECT_EQ(a.compute, b.compute);
  EXPECT_EQ(a.kernel_kind, b.kernel_kind);
  EXPECT_EQ(a.imbalance, b.imbalance);
  EXPECT_EQ(a.exposed_communication, b.exposed_communication);
  EXPECT_EQ(a.bubble, b.bubble);
  EXPECT_EQ(a.launch, b.launch);
  EXPECT_EQ(a.tail, b.tail);
  EXPECT_EQ(a.contention, b.contention);
  EXPECT_EQ(a.communication, b.communication);
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.ops, b.ops);
  EXPECT_EQ(a.sent_intra_node, b.sent_intra_node);
  EXPECT_EQ(a.sent_inter_node, b.sent_inter_node);
  EXPECT_EQ(a.received, b.received);
  EXPECT_EQ(a.resident_bytes, b.resident_bytes);
  EXPECT_EQ(a.peak_bytes, b.peak_bytes);
  EXPECT_EQ(a.peak_time, b.peak_time);
  EXPECT_EQ(a.peak_categories, b.peak_categories);
}

// A folded run is an exact shortcut: every rank run for itself has the totals of its representative, to the picosecond.
TEST(SimulatedOracle, FoldedRanksHaveTheTotalsOfTheirOwnRun) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  const KernelModel kernels = kernels_of(cluster);
  for (const Named& named : cases()) {
    SCOPED_TRACE(std::string(named.strategy) + " pp " + std::to_string(named.degrees.pp));
    const auto schedule = schedule_of(step_of(named, cluster));
    int folded_ranks = 0;
    for (std::size_t r = 0; r < schedule->ranks.size(); ++r) {
      folded_ranks += schedule->ranks[r].representative != static_cast<std::int32_t>(r) ? 1 : 0;
    }
    EXPECT_EQ(folded_ranks > 0, named.folds);
    if (folded_ranks == 0) continue;
    const Totals folded = simulate(*schedule, cluster, kernels);
    SimulationOptions options;
    options.unfolded = true;
    const Totals all = simulate(*schedule, cluster, kernels, options);
    EXPECT_LT(folded.ops, all.ops);
    EXPECT_EQ(folded.step, all.step);
    EXPECT_EQ(folded.critical_rank, all.critical_rank);
    ASSERT_EQ(folded.ranks.size(), all.ranks.size());
    for (std::size_t r = 0; r < all.ranks.size(); ++r) {
      SCOPED_TRACE("rank " + std::to_string(r));
      expect_equal(folded.ranks[r], all.ranks[r]);
    }
  }
}

class Memory : public TimelineSink {
 public:
  std::map<std::int32_t, std::int64_t> first, last, most;
  void op(const OpRecord&) override {}
  void memory(std::int32_t rank, Time, std::int64_t bytes, const MemoryByCategory& categories) override {
    std::int64_t sum = 0;
    for (const std::int64_t of_category : categories) sum += of_category;
    EXPECT_EQ(sum, bytes);
    first.try_emplace(rank, bytes);
    last[rank] = bytes;
    most[rank] = std::max(most[rank], bytes);
  }
};

// What the schedule asks for, what members send and what they receive is one number of bytes, by role and in all; a
// rank's time adds up to the step; memory ends where it began.
TEST(SimulatedOracle, BytesTimeAndMemoryAddUp) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  const KernelModel kernels = kernels_of(cluster);
  for (const Named& named : cases()) {
    SCOPED_TRACE(std::string(named.strategy) + " pp " + std::to_string(named.degrees.pp));
    const auto schedule = schedule_of(step_of(named, cluster));
    ObservedNetwork network(cluster);
    Memory memory;
    SimulationOptions options;
    options.unfolded = true;
    options.sink = &memory;
    for (std::int32_t rank = 0; rank < 16; ++rank) options.trace.ranks.push_back(rank);
    const Totals totals = simulate(*schedule, KernelDurations(kernels), network, options);
    std::int64_t sent = 0, received = 0, asked = 0;
    for (int rank = 0; rank < 16; ++rank) {
      const RankTotals& of_rank = totals.ranks[static_cast<std::size_t>(rank)];
      sent += of_rank.sent_intra_node + of_rank.sent_inter_node;
      received += of_rank.received;
      EXPECT_EQ(of_rank.busy() + of_rank.contention + of_rank.idle(), totals.step);
      EXPECT_EQ(memory.first.at(rank), of_rank.resident_bytes);
      EXPECT_EQ(memory.last.at(rank), of_rank.resident_bytes);
      EXPECT_EQ(memory.most.at(rank), of_rank.peak_bytes);
      for (const std::string& role : schedule->roles) {
        asked += volume_of(*schedule, rank, {role, {}, {}, {}}, 8).leaves_gpu;
      }
    }
    EXPECT_GT(sent, 0);
    EXPECT_EQ(sent, received);
    EXPECT_EQ(sent, asked);
    for (const auto& [role, bytes] : network.bytes) {
      EXPECT_EQ(bytes.sent_intra_node + bytes.sent_inter_node, bytes.received) << role;
    }
  }
}

// Parts of a step take less time than the whole: attention < layers < forward and backward < step, and forward passes
// alone less than both. The compute of a layer's attention is the same in every scope.
TEST(SimulatedOracle, PartsOfAStepAreOrdered) {
  const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  const KernelModel kernels = kernels_of(cluster);
  for (const Named& named : cases()) {
    SCOPED_TRACE(std::string(named.strategy) + " pp " + std::to_string(named.degrees.pp));
    const Strategy& strategy = *find_strategy(named.strategy);
    const StrategyRequest request = request_of(step_of(named, cluster));
    const auto simulated = [&](Scope scope, bool backward) {
      StrategyRequest part = request;
      part.training.scope = scope;
      part.training.backward = backward;
      EXPECT_TRUE(check_applicable(strategy, part).has_value());
      return simulate(*strategy.plan(part)->schedule, cluster, kernels);
    };
    const Totals step = simulated(Scope::kStep, true);
    const Totals forward_backward = simulated(Scope::kForwardBackward, true);
    const Totals layers = simulated(Scope::kLayers, true);
    EXPECT_LT(forward_backward.step, step.step);
    EXPECT_LT(layers.step, forward_backward.step);
    EXPECT_GT(layers.step.ps(), 0);
    if (strategy.family == StrategyFamily::kPipeline) continue;
    EXPECT_LT(simulated(Scope::kLayers, false).step, layers.step);
    const Totals attention = simulated(Scope::kAttention, true);
    const Totals inference = simulated(Scope::kAttention, false);
    EXPECT_LT(attention.step, layers.step);
    EXPECT_LT(inference.step, attention.step);
    EXPECT_GT(inference.step.ps(), 0);
    for (std::size_t rank = 0; rank < attention.ranks.size(); ++rank) {
      for (const KernelKind kind : {KernelKind::kAttentionForwardRagged, KernelKind::kAttentionBackwardRagged}) {
        const auto at = static_cast<std::size_t>(kind);
        EXPECT_EQ(attention.ranks[rank].kernel_kind[at], step.ranks[rank].kernel_kind[at]) << rank;
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::oracle
