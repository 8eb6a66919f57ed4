// Pipelines against dpp.md 4.2 and 7: real schedules through the simulated executor, with fixed kernel times.
//
// Every attention op of a layer takes 1 ps forward and 2 ps backward; all other ops, launches, transfers and recompute
// take none. With kLayers layers a stage, F = kLayers and B = 2 kLayers ps: kLayers is the unit of the paper's vectors.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sim/strategies/pipeline/schedule.h"
#include "tests/oracle/study/oracle_case.h"
#include "tests/unit/executor/hand_made.h"

namespace longhaul::oracle {
namespace {

using Counts = std::vector<std::int32_t>;
constexpr std::int64_t kLayers = 4;
constexpr std::int64_t kTokens = 64;  // of each slice

ModelShape small_model(std::int64_t layers) {
  ModelShape model;
  model.name = "small";
  model.hidden = 16;
  model.ffn = 24;
  model.q_heads = model.kv_heads = 2;
  model.head_dim = 8;
  model.layers = layers;
  model.vocab = 31;
  return model;
}

StepCase step_of(const std::string& strategy, int stages, const std::vector<std::int64_t>& documents) {
  StepCase of;
  of.strategy = strategy;
  of.model = small_model(stages * kLayers);
  for (const std::int64_t tokens : documents) of.sequences.push_back({tokens});
  of.degrees.pp = stages;
  return of;
}

// One stream of sequences with these slice counts, kTokens tokens a slice, in DPP's order.
std::shared_ptr<const Schedule> sliced_schedule(int stages, const Counts& slices, Recompute recompute) {
  std::vector<std::int64_t> documents;
  for (const std::int32_t count : slices) documents.push_back(count * kTokens);
  StepCase of = step_of("dpp", stages, documents);
  of.recompute = recompute;
  PipelinePlan plan;
  plan.layout = {1, stages, 1};
  plan.stage_layers = stage_layers(of.model.layers, stages);
  ReplicaPlan replica;
  replica.streams = make_streams({slices});
  replica.order = sliced_1f1b_order(stages, replica.streams);
  for (std::size_t d = 0; d < slices.size(); ++d) {
    const auto first = static_cast<std::int32_t>(replica.chunks.size());
    for (std::int32_t slice = 0; slice < slices[d]; ++slice) {
      PipelineChunk chunk;
      chunk.pieces = {{static_cast<DocumentId>(d), slice * kTokens, kTokens, slice, slices[d], first}};
      finish_chunk(chunk, 1);
      replica.chunks.push_back(std::move(chunk));
    }
  }
  plan.replicas = {std::move(replica)};
  const StrategyRequest request = request_of(of);
  check_plan(plan, *request.batch);
  return pipeline_schedule(request, plan);
}

// The largest number of checkpoint bytes that each rank ever holds.
class PeakCheckpoints : public TimelineSink {
 public:
  std::map<std::int32_t, std::int64_t> peak;
  void op(const OpRecord&) override {}
  void memory(std::int32_t rank, Time, std::int64_t, const MemoryByCategory& categories) override {
    std::int64_t& most = peak[rank];
    most = std::max(most, categories[static_cast<std::size_t>(MemoryCategory::kCheckpoints)]);
  }
};

struct UnitRun {
  Totals totals;
  Counts live;  // by stage: chunks whose layer inputs are held at once
};

UnitRun run_units(const Schedule& schedule) {
  hand_made::FixedDurations durations;
  durations.rule = [](const OpInstance& at) -> std::int64_t {
    if (at.op->kind != OpKind::kAttention) return 0;
    return at.op->pass == Pass::kForward ? 1 : (at.op->pass == Pass::kBackward ? 2 : 0);
  };
  hand_made::FixedNetwork network;
  network.rule = [](const CollectiveCall&) { return 0; };
  PeakCheckpoints sink;
  SimulationOptions options;
  options.sink = &sink;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    options.trace.ranks.push_back(static_cast<std::int32_t>(rank));
  }
  UnitRun result{simulate(schedule, durations, network, options), {}};
  // A chunk keeps its kLayers layer inputs; in passing, the output that is being sent on or an input that has come
  // early stand beside them, fewer than kLayers.
  const std::int64_t chunk_bytes = kLayers * kTokens * schedule.model.hidden * 2;
  for (const auto& [rank, bytes] : sink.peak) result.live.push_back(static_cast<std::int32_t>(bytes / chunk_bytes));
  return result;
}

struct Vector {
  Counts slices;
  int stages;
  std::int64_t makespan;
  Counts peaks;
};

// dpp.md 4.2, "Test vectors": F = 1, B = 2, no communication. Makespan = sum (F + B) + (p-1)(F + B).
TEST(DppScheduleOracle, MakespansAndPeaksOfSection42) {
  const Vector vectors[] = {{{4, 4, 4, 4}, 4, 57, {7, 6, 5, 4}},
                            {{3, 1, 1, 1, 1, 1}, 4, 33, {6, 5, 4, 3}},
                            {{5, 3, 1, 1, 1, 1, 1, 1, 1}, 8, 66, {12, 11, 10, 9, 8, 7, 6, 5}},
                            {{6, 4, 2, 1, 1, 1}, 2, 48, {7, 6}}};
  for (const Vector& vector : vectors) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      const UnitRun result = run_units(*sliced_schedule(vector.stages, vector.slices, recompute));
      EXPECT_EQ(result.totals.step.ps(), vector.makespan * kLayers);
      EXPECT_EQ(result.live, vector.peaks);
    }
  }
}

// Every stage works m (F + B) and idles (p-1)(F + B): the bubble rate is (p-1)/(m+p-1) exactly. All of the idle time is
// waiting on an edge, or the tail after a rank's last op.
void expect_bubbles(const UnitRun& result, std::int64_t stages, std::int64_t chunks) {
  EXPECT_EQ(result.totals.step.ps(), (chunks + stages - 1) * 3 * kLayers);
  ASSERT_EQ(result.totals.ranks.size(), static_cast<std::size_t>(stages));
  for (const RankTotals& rank : result.totals.ranks) {
    EXPECT_EQ(rank.busy().ps(), chunks * 3 * kLayers);
    EXPECT_EQ(rank.idle().ps() * (chunks + stages - 1), result.totals.step.ps() * (stages - 1));
    EXPECT_EQ((rank.bubble + rank.tail).ps(), rank.idle().ps());
  }
}

// dpp.md 7, 1F1B: bubble rate (p-1)/(m+p-1), peak activation p - r on stage r (m >= p).
TEST(PipelineScheduleOracle, OneFOneBOfSection7) {
  for (const auto& [stages, micro_batches] : std::vector<std::pair<int, int>>{{2, 2}, {4, 4}, {4, 12}, {8, 16}}) {
    StepCase of = step_of("1f1b", stages, std::vector<std::int64_t>(static_cast<std::size_t>(micro_batches), kTokens));
    of.recompute = Recompute::kFull;
    const UnitRun result = run_units(*schedule_of(of));
    expect_bubbles(result, stages, micro_batches);
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_EQ(result.live[static_cast<std::size_t>(stage)], stages - stage) << stages << " stages";
    }
  }
}

// dpp.md 7, Seq1F1B with s slices of equal time: bubble (p-1)(F+B+W)/s, where a slice's F+B+W is 1/s of a
// micro-batch's; peak (p-r-1+s)/s micro-batches on stage r, that is p-r-1+s slices.
TEST(PipelineScheduleOracle, Seq1F1BOfSection7) {
  for (const int stages : {2, 4}) {
    for (const int slices : {1, 2, 4}) {
      const int micro_batches = 2 * stages;
      StepCase of = step_of("seq1f1b", stages,
                            std::vector<std::int64_t>(static_cast<std::size_t>(micro_batches), slices * kTokens));
      of.options["slices"] = slices;
      of.recompute = Recompute::kFull;
      const UnitRun result = run_units(*schedule_of(of));
      expect_bubbles(result, stages, micro_batches * slices);
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(result.live[static_cast<std::size_t>(stage)], stages - stage - 1 + slices) << stages << " stages";
      }
    }
  }
}

// dpp.md 7: P2P volume of 1F1B is that of GPipe, and slices send the same bytes in s times the messages.
TEST(PipelineScheduleOracle, SlicesSendTheSameBytes) {
  for (const int slices : {1, 4}) {
    StepCase of = step_of("seq1f1b", 4, std::vector<std::int64_t>(8, 4 * kTokens));
    of.options["slices"] = slices;
    const UnitRun result = run_units(*schedule_of(of));
    const std::int64_t hidden_rows = 8 * 4 * kTokens * of.model.hidden * 2;
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const std::int64_t edges = (stage > 0 ? 1 : 0) + (stage < 3 ? 1 : 0);
      EXPECT_EQ(result.totals.ranks[stage].sent_intra_node, edges * hidden_rows);
      EXPECT_EQ(result.totals.ranks[stage].received, edges * hidden_rows);
    }
  }
}

}  // namespace
}  // namespace longhaul::oracle
