// Plans given in a study: dpp's `assignment`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/strategies/pipeline/assignment.h"
#include "sim/strategies/pipeline/plan_json.h"
#include "sim/strategies/pipeline/planners.h"
#include "tests/unit/strategies/option_errors.h"

namespace longhaul {
namespace {

// Documents of 6, 3 and 2 tokens.
Batch three_documents() {
  Batch batch;
  batch.documents = {6, 3, 2};
  batch.sequences.push_back({{0, 1, 2}, 11});
  batch.context_tokens = 11;
  return batch;
}

Json piece(int document, int first, int tokens) {
  return {{"document", document}, {"first_token", first}, {"tokens", tokens}};
}
template <class... Parts>
Json list(Parts... parts) {
  Json all = Json::array();
  (all.push_back(std::move(parts)), ...);
  return all;
}

DppCostModel costs() {
  DppCostModel model;
  model.forward.alpha2 = 1;
  model.backward.alpha2 = 2;
  return model;
}
const PipelineLayout kTwoStages{1, 2, 1};

std::string refusal(const Json& assignment) {
  const Applicable<PipelinePlan> plan = assigned_pipeline(assignment, three_documents(), 4, kTwoStages, costs());
  return plan ? "" : plan.error();
}

// One stream: document 0 in two slices, the second with document 1 behind it; then document 2 alone.
Json good() {
  return list(list(list(list(list(piece(0, 0, 4)), list(piece(0, 4, 2), piece(1, 0, 3))), list(list(piece(2, 0, 2))))));
}

TEST(PipelineAssignment, IsThePlan) {
  const Applicable<PipelinePlan> plan = assigned_pipeline(good(), three_documents(), 4, kTwoStages, costs());
  ASSERT_TRUE(plan) << plan.error();
  check_plan(*plan, three_documents());
  const ReplicaPlan& replica = plan->replicas.front();
  ASSERT_EQ(replica.chunks.size(), 3U);
  EXPECT_EQ(replica.streams.front().slices, (std::vector<std::int32_t>{2, 1}));
  EXPECT_EQ(replica.chunks[1].kind, ChunkKind::kHybrid);
  EXPECT_EQ(replica.chunks[1].pieces[0].slice, 1);
  EXPECT_EQ(replica.chunks[1].pieces[0].slices, 2);
  EXPECT_EQ(replica.order.previous_slice, (std::vector<std::int32_t>{-1, 0, -1}));
  EXPECT_EQ(pipeline_assignment_of(*plan), good());
}

// What the planner made is made again, to the chunk, by its assignment alone, on one replica and on two.
TEST(PipelineAssignment, GivesThePlannersPlanAgain) {
  Batch batch;
  batch.documents = {900, 64, 333, 12, 512, 77, 300, 5};
  batch.sequences.push_back({{0, 1, 2, 3, 4, 5, 6, 7}, 2203});
  batch.context_tokens = 2203;
  const ModelShape model;
  for (const std::int32_t dp : {1, 2}) {
    const PipelineLayout layout{dp, 4, 2};
    DppOptions options;
    options.chunk_tokens = 700;
    DppCostModel cost = costs();
    cost.forward.alpha1 = 1e-3;
    const Applicable<PipelinePlan> first = plan_dpp(batch, 8, layout, cost, options);
    ASSERT_TRUE(first) << first.error();
    DppCostModel other = costs();  // which would have planned otherwise
    const auto again = assigned_pipeline(pipeline_assignment_of(*first), batch, 8, layout, other);
    ASSERT_TRUE(again) << again.error();
    for (std::size_t i = 0; i < first->replicas.size(); ++i) {
      const Json was = pipeline_plan_json(*first, model)["replicas"][i],
                 is = pipeline_plan_json(*again, model)["replicas"][i];
      EXPECT_EQ(is["order"], was["order"]);
      EXPECT_EQ(is["streams"].size(), was["streams"].size());
    }
    EXPECT_EQ(pipeline_assignment_of(*again), pipeline_assignment_of(*first));
  }
}

TEST(PipelineAssignment, SaysWhatKeepsItFromBeingAPlan) {
  Json of = good();
  EXPECT_EQ(refusal(of), "");
  EXPECT_EQ(refusal(list(good()[0], good()[0])), "the assignment is of 2 replicas, the layout has dp = 1");
  of[0][0][1][0][0]["document"] = 3;
  EXPECT_EQ(refusal(of), "the assignment of replica 0: document 3 is not in the batch of 3");
  of = good();
  of[0][0][0][1][0]["first_token"] = 5;
  EXPECT_EQ(refusal(of), "the assignment of replica 0: document 0 goes on at token 5, after 4 tokens");
  of = good();
  of[0][0][0][1][1]["tokens"] = 4;
  EXPECT_EQ(refusal(of), "the assignment of replica 0: document 1 has 3 tokens, not 4");
  of = good();
  of[0][0].erase(1);
  EXPECT_EQ(refusal(of), "the assignment: no chunk holds token 0 of document 2");
  // The second slice in a sequence of its own would not wait for the first.
  of = list(
      list(list(list(list(piece(0, 0, 4))), list(list(piece(0, 4, 2), piece(1, 0, 3))), list(list(piece(2, 0, 2))))));
  EXPECT_EQ(refusal(of),
            "the assignment of replica 0: the slice of document 0 at token 4 is not in the chunk behind its last "
            "slice, of the same sequence");
  Batch diffusion = three_documents();
  diffusion.objective = {ObjectiveKind::kBlockDiffusion, 2};
  const auto wrong = assigned_pipeline(good(), diffusion, 4, kTwoStages, costs());
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error(), "pipelines here train causal language models only");
}

std::string errors_of(const Json& options) { return option_errors("dpp", options); }

TEST(PipelineAssignment, ErrorsOfShapeStandWhereTheyAre) {
  EXPECT_EQ(errors_of({{"assignment", good()}}), "");
  EXPECT_EQ(errors_of({{"assignment", good()}, {"max_slices", 4}}),
            "/strategies/0/max_slices says how to plan beside an \"assignment\"; expected one of the two\n");
  EXPECT_EQ(errors_of({{"assignment", 3}}), "/strategies/0/assignment is 3; expected an array of replicas\n");
  EXPECT_EQ(errors_of({{"assignment", list(Json::array())}}),
            "/strategies/0/assignment/0 is empty; expected streams\n");
  Json of = good();
  of[0][0][0][1] = Json::array();
  of[0][0][1][0][0].erase("tokens");
  of[0][0][1][0].push_back(7);
  const std::string text = errors_of({{"assignment", of}});
  EXPECT_NE(text.find("/strategies/0/assignment/0/0/0/1 is empty; expected pieces\n"), std::string::npos) << text;
  EXPECT_NE(text.find("/strategies/0/assignment/0/0/1/0/0"), std::string::npos) << text;
  EXPECT_NE(text.find("/strategies/0/assignment/0/0/1/0/1"), std::string::npos) << text;
}

}  // namespace
}  // namespace longhaul
