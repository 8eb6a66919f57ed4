// What a step trains: WLB-LLM's delayed packing over the steps of a study, Skrull's micro-batches (GDS). Worked
// vectors, what they report, what they refuse.
#include <gtest/gtest.h>

#include "sim/strategies/context_parallel/skrull.h"
#include "sim/strategies/context_parallel/wlb.h"
#include "sim/strategies/registry.h"
#include "sim/workload/arithmetic.h"
#include "tests/unit/strategies/ring_case.h"

namespace longhaul {
namespace {

std::shared_ptr<const Batch> batch_of(std::vector<std::vector<std::int64_t>> sequences) {
  RingCase of;
  of.sequences = std::move(sequences);
  return ring_batch(of);
}

std::vector<std::vector<std::int64_t>> lengths_of(const Batch& batch) {
  std::vector<std::vector<std::int64_t>> lengths;
  for (const Sequence& sequence : batch.sequences) {
    lengths.emplace_back();
    for (const DocumentId id : sequence.documents) {
      lengths.back().push_back(batch.documents[static_cast<std::size_t>(id)]);
    }
  }
  return lengths;
}

using Lengths = std::vector<std::vector<std::int64_t>>;

TEST(WlbSteps, ThresholdsBeginAtHalfAWindow) {
  EXPECT_EQ(wlb_thresholds(8, 1), (std::vector<std::int64_t>{4}));
  EXPECT_EQ(wlb_thresholds(120, 3), (std::vector<std::int64_t>{60, 80, 100}));
  EXPECT_EQ(wlb_thresholds(1, 2), (std::vector<std::int64_t>{1, 1}));
}

// Two micro-batches of 8 tokens (10 when packed), one queue from 4 tokens on. Step 0: 8 waits; 3, 3, 2 are dealt.
// Step 1: 8, 5, 4 wait, two of them go: 8, 5, then 3 and 2 to the bin of the 5 (less work), which is then full at 10,
// so that the last 2 goes to the 8.
TEST(WlbSteps, LongDocumentsWaitForOneEachMicroBatch) {
  const ModelShape model = ring_model({});
  const std::vector<std::shared_ptr<const Batch>> loaded = {batch_of({{8}, {3, 3, 2}}), batch_of({{5, 3}, {2, 2, 4}})};
  const auto first = wlb_steps(std::span(loaded).first(1), model, 1, 1, 1.25, 1);
  ASSERT_TRUE(first.has_value()) << first.error();
  EXPECT_EQ(lengths_of(*first->batch), (Lengths{{3, 2}, {3}}));
  EXPECT_EQ(first->mean_delay, 0);
  EXPECT_EQ(first->waiting_documents, 1);
  EXPECT_EQ(first->waiting_tokens, 8);

  const auto second = wlb_steps(loaded, model, 1, 1, 1.25, 1);
  ASSERT_TRUE(second.has_value()) << second.error();
  EXPECT_EQ(lengths_of(*second->batch), (Lengths{{8, 2}, {5, 3, 2}}));
  EXPECT_EQ(second->batch->context_tokens, 10);
  EXPECT_EQ(second->mean_delay, 8.0 / 28.0);  // one step for 8 of the 8 + 20 tokens trained
  EXPECT_EQ(second->most_delay, 1);
  EXPECT_EQ(second->waiting_documents, 1);
  EXPECT_EQ(second->waiting_tokens, 4);
  const WlbWork work{attention_forward_flops(model, 1).value, layer_matmul_flops(model, 1).value};
  const auto ratio = [&](std::vector<std::int64_t> a, std::vector<std::int64_t> b) {
    double sums[2] = {0, 0};
    for (const std::int64_t tokens : a) sums[0] += work.of(tokens);
    for (const std::int64_t tokens : b) sums[1] += work.of(tokens);
    return 2 * std::max(sums[0], sums[1]) / (sums[0] + sums[1]);
  };
  EXPECT_DOUBLE_EQ(second->imbalance, (ratio({3, 2}, {3}) + ratio({8, 2}, {5, 3, 2})) / 2);
  EXPECT_DOUBLE_EQ(second->loaded_imbalance, (ratio({8}, {3, 3, 2}) + ratio({5, 3}, {2, 2, 4})) / 2);
}

TEST(WlbSteps, EveryMicroBatchNeedsADocument) {
  const std::vector<std::shared_ptr<const Batch>> loaded = {batch_of({{8}, {8}, {1, 7}, {3}})};
  EXPECT_EQ(wlb_steps(loaded, ring_model({}), 2, 1, 1.25, 1).error(),
            "step 0 has fewer documents than micro-batches to pack them into");
}

TEST(WlbSteps, TheStrategyTrainsWhatIsPacked) {
  const Strategy& wlb = *find_strategy("wlb-cp");
  RingCase of;
  of.cp = 2;
  of.micro_batch_sequences = 2;
  of.sequences = {{8}, {3, 3, 2}, {5, 3}, {2, 2, 4}};
  StrategyRequest request = ring_request(of);
  const std::vector<std::shared_ptr<const Batch>> loaded = {request.batch};
  EXPECT_EQ(wlb.select(request, loaded).value(), "");
  EXPECT_EQ(request.batch, loaded.front());
  request.options = {{"packing", "delayed"}, {"queues", 1}};
  // Two micro-batches of 16: thresholds count one window of 8. All three long ones: 8, 5, 4; two go.
  const auto line = wlb.select(request, loaded);
  ASSERT_TRUE(line.has_value()) << line.error();
  EXPECT_EQ(line->find("delayed packing over 1 step: a token waits 0.000 steps on average, 0 at most; 1 document of 4 "
                       "tokens still waiting at the end; work of the heaviest micro-batch over the mean 1."),
            0u)
      << *line;
  EXPECT_NE(line->find("; speed-ups count the tokens trained; more \"steps\" would train what waits"),
            std::string::npos)
      << *line;
  EXPECT_EQ(request.batch->sequences.size(), 2u);
  EXPECT_EQ(request.batch->tokens(), 28);
  EXPECT_EQ(request.training.micro_batch_sequences, 1);
  const Planned planned = wlb.plan(request);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  EXPECT_EQ(planned->schedule->batch, request.batch);
}

TEST(WlbSteps, OptionsThatDoNothingAreErrors) {
  const auto texts = [](const Json& options) {
    Errors errors;
    find_strategy("wlb-cp")->check_options(options, "s.json", "/strategies/0", errors);
    std::string text;
    for (const InputError& error : errors) text += error.to_string() + "\n";
    return text;
  };
  EXPECT_EQ(texts({{"packing", "delayed"}, {"queues", 3}, {"packing_limit", 1.5}}), "");
  EXPECT_EQ(
      texts({{"packing", "variable"}, {"queues", 2}}),
      "s.json: /strategies/0/queues: is given for packing without delay; expected \"packing\": \"delayed\" beside "
      "it\n");
  EXPECT_EQ(texts({{"packing_limit", 2}}),
            "s.json: /strategies/0/packing_limit: is given for packing of fixed length; expected \"packing\": "
            "\"variable\" or \"delayed\" beside it\n");
  EXPECT_EQ(texts({{"packing", "delayed"}, {"queues", 9}}),
            "s.json: /strategies/0/queues: is 9; expected an integer from 1 to 8\n");
}

// 2 replicas, work = pairs: 6 -> 0 (21), 5 -> 1 (15), 4 -> 1 (25), 3 -> 0 (27), 2 -> 1 (28), 1 -> 0 (28). One
// micro-batch of 10 or 11 tokens does not fit 2 buckets of 4, two do: shortest first in turn {1, 6}, {3} and {2, 5},
// {4}.
TEST(SkrullBatches, DealsByWorkThenInTurn) {
  const auto found = skrull_batches(*batch_of({{1, 2, 3}, {4, 5, 6}}), 2, 2, 4, {1, 0});
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_EQ(found->micro_batches, 2);
  EXPECT_EQ(lengths_of(*found->batch), (Lengths{{1, 6}, {2, 5}, {3}, {4}}));
  EXPECT_EQ(found->imbalance, 1);
  const auto roomy = skrull_batches(*batch_of({{1, 2, 3}, {4, 5, 6}}), 2, 2, 8, {1, 0});
  ASSERT_TRUE(roomy.has_value()) << roomy.error();
  EXPECT_EQ(lengths_of(*roomy->batch), (Lengths{{1, 3, 6}, {2, 4, 5}}));
}

TEST(SkrullBatches, NamesWhyItCannot) {
  EXPECT_EQ(skrull_batches(*batch_of({{64}}), 2, 2, 4, {1, 0}).error(),
            "1 documents cannot fill 8 micro-batches on each of 2 replicas");
  EXPECT_EQ(skrull_batches(*batch_of({{9, 9}}), 2, 2, 4, {1, 0}).error(),
            "2 documents cannot fill 2 micro-batches on each of 2 replicas");
  EXPECT_EQ(skrull_batches(*batch_of({{9, 2, 9, 2}}), 2, 2, 4, {1, 0}).error(),
            "no number of micro-batches fits the documents into buckets: 9 tokens do not fit 2 buckets of 4");
}

TEST(SkrullBatches, TheStrategyTrainsThem) {
  const Strategy& skrull = *find_strategy("skrull");
  RingCase of;
  of.cp = of.dp = 2;
  of.sequences = {{1, 2, 3}, {4, 5, 6}};
  StrategyRequest request = ring_request(of);
  const std::vector<std::shared_ptr<const Batch>> loaded = {request.batch};
  EXPECT_EQ(skrull.select(request, loaded).value(), "");
  EXPECT_EQ(request.batch, loaded.front());
  request.options = {{"micro_batches", "gds"}, {"bucket_tokens", 4}};
  const auto line = skrull.select(request, loaded);
  ASSERT_TRUE(line.has_value()) << line.error();
  EXPECT_EQ(
      line->find("GDS: 2 micro-batches a replica in buckets of 4, work of the heaviest replica over the mean 1.0"), 0u)
      << *line;
  const Planned planned = skrull.plan(request);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  EXPECT_EQ(planned->schedule->batch->sequences.size(), 4u);
}

}  // namespace
}  // namespace longhaul
