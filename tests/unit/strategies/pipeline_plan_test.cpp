#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/strategies/pipeline/grouping.h"
#include "sim/strategies/pipeline/plan_json.h"
#include "sim/strategies/pipeline/planners.h"

namespace longhaul {
namespace {

// Each sequence a list of document lengths.
Batch packed(const std::vector<std::vector<std::int64_t>>& sequences) {
  Batch batch;
  for (const std::vector<std::int64_t>& lengths : sequences) {
    Sequence& sequence = batch.sequences.emplace_back();
    for (const std::int64_t tokens : lengths) {
      sequence.documents.push_back(static_cast<DocumentId>(batch.documents.size()));
      sequence.tokens += tokens;
      batch.documents.push_back(tokens);
    }
  }
  return batch;
}

DppCostModel costs(double alpha1, double alpha2) {
  DppCostModel model;
  model.forward.alpha1 = alpha1;
  model.forward.alpha2 = alpha2;
  model.backward.alpha1 = 2 * alpha1;
  model.backward.alpha2 = 2 * alpha2;
  return model;
}

std::string pieces_text(const PipelineChunk& chunk) {
  std::string text;
  for (const DocumentPiece& piece : chunk.pieces) {
    text += fmt::format("d{}[{},{}){}/{}@{} ", piece.document, piece.first, piece.end(), piece.slice, piece.slices,
                        piece.first_chunk);
  }
  return text;
}

std::vector<std::string> texts(const ReplicaPlan& replica) {
  std::vector<std::string> result;
  for (const PipelineChunk& chunk : replica.chunks) result.push_back(pieces_text(chunk));
  return result;
}

using Texts = std::vector<std::string>;

TEST(StageLayers, TheFirstStagesHoldOneMore) {
  EXPECT_EQ(stage_layers(32, 4), (std::vector<std::int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(stage_layers(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
}

// 16 tokens, sp = 2, 4 slices: cuts at 4, 8, 12. Document 0 ends inside slice 2, where document 1 begins.
TEST(PlanSliced, DocumentsCrossEqualTokenSlices) {
  const Batch batch = packed({{10, 6}, {16}});
  const PipelinePlan plan = *plan_sliced_1f1b(batch, 4, {1, 2, 2}, costs(0, 1), {1, 4, SlicePolicy::kEqualTokens});
  EXPECT_EQ(texts(plan.replicas[0]),
            (Texts{"d0[0,4)0/3@0 ", "d0[4,8)1/3@0 ", "d0[8,10)2/3@0 d1[0,2)0/2@2 ", "d1[2,6)1/2@2 ", "d2[0,4)0/4@4 ",
                   "d2[4,8)1/4@4 ", "d2[8,12)2/4@4 ", "d2[12,16)3/4@4 "}));
  EXPECT_EQ(plan.replicas[0].streams[0].slices, (std::vector<std::int32_t>{4, 4}));
  EXPECT_EQ(plan.replicas[0].order.stages, seq1f1b_order(2, 2, 4).stages);
  EXPECT_EQ(plan.replicas[0].chunks[2].kind, ChunkKind::kSplit);
  // 8 x 2 + 3 of document 0, then 3 of document 1.
  EXPECT_EQ(plan.replicas[0].chunks[2].pairs(), 22);
}

// Attention only: cuts where x^2 reaches j/4 of 16^2: 8, 11.3 and 13.9, to the nearest even token.
TEST(PlanSliced, EqualTimeSlicesShrinkWithTheContext) {
  const PipelinePlan plan =
      *plan_sliced_1f1b(packed({{16}}), 4, {1, 2, 2}, costs(1, 0), {1, 4, SlicePolicy::kEqualTime});
  EXPECT_EQ(texts(plan.replicas[0]), (Texts{"d0[0,8)0/4@0 ", "d0[8,12)1/4@0 ", "d0[12,14)2/4@0 ", "d0[14,16)3/4@0 "}));
}

TEST(PlanSliced, OneSliceIsPlain1F1BAndDealsMicroBatchesRound) {
  const Batch batch = packed({{3}, {5}, {2, 2}, {1}, {7}, {4}, {6}, {8}});
  const PipelinePlan plan = *plan_sliced_1f1b(batch, 5, {2, 2, 4}, costs(1, 1), {2, 1, {}});
  EXPECT_EQ(texts(plan.replicas[0]), (Texts{"d0[0,3)0/1@0 d1[0,5)0/1@0 ", "d5[0,7)0/1@1 d6[0,4)0/1@1 "}));
  EXPECT_EQ(texts(plan.replicas[1]), (Texts{"d2[0,2)0/1@0 d3[0,2)0/1@0 d4[0,1)0/1@0 ", "d7[0,6)0/1@1 d8[0,8)0/1@1 "}));
  EXPECT_EQ(plan.replicas[1].chunks[0].tokens, 5);
  EXPECT_EQ(plan.replicas[1].chunks[0].rows, 8);
  EXPECT_EQ(plan.replicas[0].order.stages, one_f_one_b_order(2, 2).stages);
  EXPECT_EQ(plan.stage_layers, (std::vector<std::int64_t>{3, 2}));
}

// A micro-batch of 3 tokens at sp = 2 has two units: two slices, not four.
TEST(PlanSliced, ShortMicroBatchesGetFewerSlices) {
  const PipelinePlan plan = *plan_sliced_1f1b(packed({{3}, {1}}), 2, {1, 2, 2}, costs(1, 1), {1, 4, {}});
  EXPECT_EQ(texts(plan.replicas[0]), (Texts{"d0[0,2)0/2@0 ", "d0[2,3)1/2@0 ", "d1[0,1)0/1@2 "}));
}

// Linear cost, capacity 100, so K = 3: cuts 83, 167, 250 (83.3 and 166.7 rounded), largest cell T_m = 84. Document 0
// fills its cells; document 1 has a tail of 37. Shorts: 60 does not fit the tail (97 > 84) and opens a bucket; 40 joins
// the tail (77); 30 fits neither (107, 90) and opens another.
TEST(PlanDpp, SplitHybridAndBatchedChunksByHand) {
  const PipelinePlan plan = *plan_dpp(packed({{250, 120, 60, 40, 30}}), 2, {1, 2, 1}, costs(0, 1), {100, 0, 3});
  const ReplicaPlan& replica = plan.replicas[0];
  EXPECT_EQ(texts(replica), (Texts{"d0[0,83)0/3@0 ", "d0[83,167)1/3@0 ", "d0[167,250)2/3@0 ", "d1[0,83)0/2@3 ",
                                   "d1[83,120)1/2@3 d3[0,40)0/1@4 ", "d2[0,60)0/1@5 ", "d4[0,30)0/1@6 "}));
  EXPECT_EQ(replica.streams[0].slices, (std::vector<std::int32_t>{3, 2, 1, 1}));
  EXPECT_EQ(replica.chunks[3].kind, ChunkKind::kSplit);
  EXPECT_EQ(replica.chunks[4].kind, ChunkKind::kHybrid);
  EXPECT_EQ(replica.chunks[5].kind, ChunkKind::kWhole);
  EXPECT_EQ(replica.token_cap, 84);
  EXPECT_EQ(replica.order.stages, sliced_1f1b_order(2, make_streams({{3, 2, 1, 1}})).stages);
}

// Linear cost, capacity 100: only K = 4 brings the document of 400 to slices of 100, and each of ten documents of 100
// is a chunk. One stream keeps 2 - 1 + 4 chunks alive on stage 0, 500 rows; F = 50 s, B = 100 s a stage, so
// (14 + 1) x 150 s. Under 450 rows the long document gets its own stream (4 chunks, 400 rows) and the shorts theirs
// (2 chunks alive): (4 + 1 + 10 + 1) x 150 s.
TEST(PlanDpp, AWindowLimitSplitsTheStream) {
  Batch batch = packed({{400, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100}});
  const PipelinePlan one = *plan_dpp(batch, 2, {1, 2, 1}, costs(0, 1), {100, 0, 4});
  ASSERT_EQ(one.replicas[0].streams.size(), 1u);
  EXPECT_EQ(one.replicas[0].streams[0].slices, (std::vector<std::int32_t>{4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_DOUBLE_EQ(one.replicas[0].modelled_seconds, 15 * 150);
  const PipelinePlan two = *plan_dpp(batch, 2, {1, 2, 1}, costs(0, 1), {100, 450, 4});
  ASSERT_EQ(two.replicas[0].streams.size(), 2u);
  EXPECT_EQ(two.replicas[0].streams[0].slices, (std::vector<std::int32_t>{4}));
  EXPECT_EQ(two.replicas[0].streams[1].n_split(), 1);
  EXPECT_EQ(two.replicas[0].mesh_slices, 4);
  EXPECT_TRUE(two.replicas[0].window_fits);
  EXPECT_DOUBLE_EQ(two.replicas[0].modelled_seconds, 16 * 150);
  // 399 rows cannot hold the long document at all: planned as one stream, and said so.
  const PipelinePlan none = *plan_dpp(batch, 2, {1, 2, 1}, costs(0, 1), {100, 399, 4});
  EXPECT_FALSE(none.replicas[0].window_fits);
  EXPECT_EQ(none.replicas[0].streams.size(), 1u);
}

// Linear cost, 64 documents of one token on 4 stages; w = 3 / 4 s a document and stage, and every chunk costs `fixed`
// more. A cap of c makes 64 / c equal chunks, so (64 / c + 3) (c w + fixed): saving fixed costs against 3 bubbles.
// Free chunks: c = 1, (67)(0.75). fixed = 0.75 w: 35 x 2.75 w at c = 2, 19 x 4.75 w = 90.25 w at 4, 11 x 8.75 w at 8.
// fixed = 64 w: one chunk leaves 4 x 128 w; two 5 x 96 w; four 7 x 80 w. So c = 32.
TEST(PlanDpp, TheTokenCapWeighsFixedCostsAgainstBubbles) {
  const Batch batch = packed({std::vector<std::int64_t>(64, 1)});
  constexpr double kW = 0.75;
  const auto plan_with = [&](double fixed) {
    DppCostModel model = costs(0, 1);
    model.forward.beta1 = 4 * fixed / 3;  // of all four layers
    model.backward.beta1 = 8 * fixed / 3;
    return plan_dpp(batch, 4, {1, 4, 1}, model, {1000, 0, 1})->replicas[0];
  };
  const ReplicaPlan free = plan_with(0);
  EXPECT_EQ(free.token_cap, 1);
  EXPECT_NEAR(free.modelled_seconds, 67 * kW, 1e-9);
  const ReplicaPlan some = plan_with(0.75 * kW);
  EXPECT_EQ(some.token_cap, 4);
  EXPECT_EQ(some.chunks.size(), 16u);
  EXPECT_NEAR(some.modelled_seconds, 90.25 * kW, 1e-9);
  const ReplicaPlan costly = plan_with(64 * kW);
  EXPECT_EQ(costly.token_cap, 32);
  EXPECT_NEAR(costly.modelled_seconds, 480 * kW, 1e-9);
}

// The caps end at the capacity, in whole units of sp: 5, 10, 12. Two chunks (12 and 8 tokens) need 12.
TEST(PlanDpp, TheLargestTokenCapIsTheCapacity) {
  DppCostModel model = costs(0, 1);
  model.backward.beta1 = 1e6;
  const PipelinePlan plan = *plan_dpp(packed({{5, 4, 4, 4, 3}}), 2, {1, 2, 4}, model, {15, 0, 1});
  EXPECT_EQ(plan.replicas[0].token_cap, 12);
  for (const PipelineChunk& chunk : plan.replicas[0].chunks) EXPECT_LE(chunk.rows, 12);
  EXPECT_EQ(plan.replicas[0].chunks.size(), 2u);
}

// Half of 8 layers; forward 2 a chunk, backward 4 and the recomputed 2; a token adds 1/8 forward, 1/8 recomputed.
// Traffic of 100 and 1000 outlasts an empty chunk; 880 tokens hide the forward's (112 > 100), not the backward's.
TEST(StageCost, ZeroTrafficHidesBehindLongChunksOnly) {
  DppCostModel model;
  model.forward.beta1 = 4;
  model.forward.alpha2 = 1;
  model.backward.beta1 = 8;
  model.forward.zero3 = 100;
  model.backward.zero3 = 1000;
  model.recompute = true;
  const StageCost cost(model, 8, {1, 2, 4});
  PipelineChunk chunk;
  EXPECT_EQ(cost.chunk_forward(chunk), 100);
  EXPECT_EQ(cost.chunk(chunk), 1100);
  chunk.pieces.push_back({.document = 0, .first = 0, .tokens = 880});
  EXPECT_EQ(cost.chunk_forward(chunk), 112);
  EXPECT_EQ(cost.chunk(chunk), 1112);
  chunk.pieces[0].tokens = 16000;
  EXPECT_EQ(cost.chunk(chunk), 2002 + 2006);
}

// Longest first to the least loaded: 8 | 7, 6 to the second, 5 to the first; 13 = 13 with two each: 4 to the first.
TEST(PlanDpp, DealsDocumentsByModelledTime) {
  const PipelinePlan plan = *plan_dpp(packed({{4, 5, 6, 7, 8}}), 2, {2, 2, 1}, costs(0, 1), {100, 0, 1});
  const auto documents = [&](std::size_t replica) {
    std::vector<DocumentId> ids;
    for (const PipelineChunk& chunk : plan.replicas[replica].chunks) {
      for (const DocumentPiece& piece : chunk.pieces) ids.push_back(piece.document);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  EXPECT_EQ(documents(0), (std::vector<DocumentId>{0, 1, 4}));
  EXPECT_EQ(documents(1), (std::vector<DocumentId>{2, 3}));
}

TEST(PlanErrors, EveryReasonInWords) {
  const Batch batch = packed({{8, 8}, {8}});
  const DppCostModel cost = costs(1, 1);
  EXPECT_EQ(plan_dpp(batch, 4, {1, 1, 8}, cost, {100, 0, 0}).error(),
            "a pipeline needs at least 2 stages, the layout has pp = 1");
  EXPECT_EQ(plan_sliced_1f1b(batch, 3, {1, 4, 2}, cost, {}).error(), "3 layers do not fill pp = 4 stages");
  EXPECT_EQ(plan_sliced_1f1b(batch, 4, {2, 2, 2}, cost, {2, 4, {}}).error(),
            "2 sequences do not fill dp = 2 x micro-batches of 2 evenly");
  EXPECT_EQ(plan_dpp(batch, 4, {4, 2, 1}, cost, {100, 0, 0}).error(), "3 documents cannot be dealt to dp = 4 replicas");
  EXPECT_EQ(plan_dpp(batch, 4, {1, 2, 2}, cost, {3, 0, 2}).error(),
            "no number of slices up to 2 brings the document of 8 tokens under 3 tokens a chunk in slices of at least "
            "sp = 2 tokens");
  Batch diffusion = batch;
  diffusion.objective = {ObjectiveKind::kBlockDiffusion, 4};
  EXPECT_EQ(plan_dpp(diffusion, 4, {1, 2, 1}, cost, {100, 0, 0}).error(),
            "pipelines here train causal language models only");
}

// Rows 30, 20, 10 as one sequence of 3 slices, then 40; 2 stages: w_0 = 3. Alive: 60, +40 = 100 before the first
// backward; then slices leave in reverse.
TEST(PeakLiveRows, WalksTheWindowOfStageZero) {
  EXPECT_EQ(peak_live_rows(2, {5, {3, 1}}, {30, 20, 10, 40}), 100);
  // As single slots w_0 = 1: 30+20, 20+10, 10+40.
  EXPECT_EQ(peak_live_rows(2, {0, {1, 1, 1, 1}}, {30, 20, 10, 40}), 50);
}

TEST(PlanJson, HoldsChunksPiecesOrderAndEdgeBytes) {
  ModelShape model;
  model.hidden = 16;
  const PipelinePlan plan = *plan_sliced_1f1b(packed({{3}}), 2, {1, 2, 2}, costs(0, 1), {1, 2, {}});
  const nlohmann::ordered_json json = pipeline_plan_json(plan, model);
  EXPECT_EQ(json["stage_layers"].dump(), "[1,1]");
  const nlohmann::ordered_json& replica = json["replicas"][0];
  EXPECT_EQ(replica["tokens"], 3);
  EXPECT_EQ(replica["rows"], 4);
  EXPECT_EQ(replica["pairs"], 6);
  EXPECT_EQ(replica["order"].dump(), R"([["F0","F1","B1","B0"],["F0","F1","B1","B0"]])");
  EXPECT_EQ(replica["streams"][0]["warm_up"].dump(), "[2,1]");
  // One token of document 0 after two, alone in the chunk; 2 bytes x 16 x 2 rows / 2 GPUs; F + B = 3 s x 1/2 x 1/2.
  EXPECT_EQ(replica["streams"][0]["chunks"][1].dump(),
            R"({"chunk":1,"kind":"split","tokens":1,"rows":2,"pairs":3,"modelled_ms":750.0,"edge_bytes":32,)"
            R"("pieces":[{"document":0,"first":2,"tokens":1,"slice":1,"slices":2,"first_chunk":0}]})");
}

TEST(CheckPlanDeathTest, ATokenPlannedTwiceIsABug) {
  const Batch batch = packed({{8}, {8}});
  PipelinePlan plan = *plan_sliced_1f1b(batch, 2, {1, 2, 1}, costs(0, 1), {1, 2, {}});
  plan.replicas[0].chunks[1].pieces[0].first = 3;
  EXPECT_DEATH(check_plan(plan, batch), "document 0: piece at 3 of 4 tokens, slice 1, after 4 tokens in 1 slices");
}

}  // namespace
}  // namespace longhaul
