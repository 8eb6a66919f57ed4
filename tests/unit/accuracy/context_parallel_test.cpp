// Conversions from simulated times to published quantities, and the gates, on worked numbers.
#include "validate/accuracy/context_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/core/json.h"
#include "tests/unit/cost/sample_calibration.h"

namespace longhaul {
namespace {

using Q = PublishedQuantity;
using ::testing::HasSubstr;

// 8 GPUs; forward 10 ms = 6 attention + 3 communication + 1 copies; both passes 34 = 23 + 7 + 4.
PublishedRun run() {
  PublishedRun run;
  run.forward = {0.010, 0.008, 0.016, 0.006, 0.003, 0.001};
  run.both = {0.034, 0.017, 0.068, 0.023, 0.007, 0.004, 0.0004, 0.0008};
  run.forward_each = {run.forward};
  run.both_each = {run.both};
  run.forward_flops = {4e13};
  run.gpus = 8;
  run.attention_low = 0.25;
  run.attention_high = 0.5;
  run.communication_width = 0.3;
  return run;
}

PublishedPrediction of(Q quantity, double published = 1, const PublishedRun* over = nullptr) {
  PublishedNumber number;
  number.quantity = quantity;
  number.published = published;
  return predict(number, run(), over);
}

void expect_near(const PublishedPrediction& one, double value, double low, double high) {
  ASSERT_TRUE(one.predicted);
  EXPECT_NEAR(*one.predicted, value, 1e-9 * value);
  EXPECT_NEAR(one.low, low, 1e-9 * value);
  EXPECT_NEAR(one.high, high, 1e-9 * value);
}

TEST(PublishedQuantities, TimesAreMilliseconds) {
  expect_near(of(Q::kTotalMs), 34, 17, 68);
  expect_near(of(Q::kForwardMs), 10, 8, 16);
  expect_near(of(Q::kBackwardMs), 24, 12, 48);  // 34 - 10; half and twice, as both passes
}

TEST(PublishedQuantities, PartsSumToTheTotal) {
  expect_near(of(Q::kAttentionForwardMs), 6, 4.5, 9);
  expect_near(of(Q::kAttentionBackwardMs), 17, 12.75, 25.5);
  expect_near(of(Q::kGatherMs), 3, 2.1, 3.9);
  expect_near(of(Q::kScatterMs), 4, 2.8, 5.2);
  expect_near(of(Q::kCopiesMs), 4, 3.6, 4.8);
  double sum = 0;
  for (const Q part : {Q::kAttentionForwardMs, Q::kAttentionBackwardMs, Q::kGatherMs, Q::kScatterMs, Q::kCopiesMs}) {
    sum += *of(part).predicted;
  }
  EXPECT_NEAR(sum, *of(Q::kTotalMs).predicted, 1e-9);
}

// 4e13 FLOPs over 8 GPUs in 10 ms: 5e12 / 0.01 = 500 TFLOP/s; backward 2.5 x 5e12 / 0.024 = 520.8.
TEST(PublishedQuantities, TflopsCountBackwardTwoAndAHalfTimes) {
  expect_near(of(Q::kTflopsForward), 500, 312.5, 625);
  expect_near(of(Q::kTflopsBackward), 12.5 / 0.024, 12.5 / 0.048, 12.5 / 0.012);
}

// A second sequence of a quarter of the FLOPs in half of the times: 250 TFLOP/s forward, 2.5 x 1.25 / 0.012 = 260.4
// backward. The mean of the rates, not all FLOPs over all time, which is 416.7 and 434.
TEST(PublishedQuantities, TflopsAreTheMeanOfTheSequences) {
  PublishedRun two = run();
  two.forward_each.push_back({0.005, 0.004, 0.008});
  two.both_each.push_back({0.017, 0.0085, 0.034});
  two.forward_flops.push_back(1e13);
  PublishedNumber number;
  number.published = 1;
  number.quantity = Q::kTflopsForward;
  expect_near(predict(number, two, nullptr), 375, 0.75 * 312.5, 0.75 * 625);
  number.quantity = Q::kTflopsBackward;
  expect_near(predict(number, two, nullptr), 0.75 * 12.5 / 0.024, 0.75 * 12.5 / 0.048, 0.75 * 12.5 / 0.012);
}

TEST(PublishedQuantities, RatesAndRatiosTakeBothTermsAtOneEnd) {
  expect_near(of(Q::kPerSecond), 1 / 0.034, 1 / 0.068, 1 / 0.017);
  expect_near(of(Q::kPerSecondForward), 100, 62.5, 125);
  PublishedRun over = run();
  over.both = {0.051, 0.034, 0.068, 0, 0, 0};
  over.forward = {0.015, 0.010, 0.016, 0, 0, 0};
  expect_near(of(Q::kSpeedup, 1, &over), 1.5, 1, 2);
  expect_near(of(Q::kSpeedupForward, 1, &over), 1.5, 1, 1.5);  // ends 1.25 and 1: the value itself is the high end
}

TEST(PublishedQuantities, ErrorIsSigned) {
  EXPECT_NEAR(of(Q::kTotalMs, 40).error, -0.15, 1e-12);
  EXPECT_NEAR(of(Q::kPerSecondForward, 80).error, 0.25, 1e-12);
}

// Whole inputs: 2 ms (1.5 to 4) after the backward pass, in the step and in the copies of both passes alone.
TEST(PublishedQuantities, WholeInputsEndInTheirGradients) {
  PublishedRun made = run();
  made.input_gradients = {0.002, 0.0015, 0.004};
  EXPECT_NEAR(as_timed(made, PublishedInputs::kWhole).both_each[0].step, 0.036, 1e-12);
  const PublishedRun own = as_timed(made, PublishedInputs::kOwn);
  EXPECT_EQ(own.both.step, made.both.step);
  const PublishedRun whole = as_timed(made, PublishedInputs::kWhole);
  EXPECT_EQ(whole.forward.step, made.forward.step);
  PublishedNumber number;
  number.published = 1;
  number.quantity = Q::kTotalMs;
  expect_near(predict(number, whole, nullptr), 36, 18.5, 72);
  number.quantity = Q::kCopiesMs;
  expect_near(predict(number, whole, nullptr), 6, 5.1, 8.8);
  number.quantity = Q::kAttentionBackwardMs;
  expect_near(predict(number, whole, nullptr), 17, 12.75, 25.5);
}

// Q of 4 x 8 and K, V of 2 x 8 columns, 1,024 rows, 4 ranks, bf16: 65,536 + 2 x 32,768 bytes; three quarters of each
// zeros, twice joined, three times added. The sample has no eager kernels: its element-wise ones.
TEST(PublishedQuantities, InputGradientsAreZerosJoinedAndAdded) {
  ModelShape model;
  model.head_dim = 8;
  model.q_heads = 4;
  model.kv_heads = 2;
  const KernelModel kernels = sample_model(sample_device("any"));
  double expected = 0, low = 0;
  for (const std::int64_t whole : {65536, 32768, 32768}) {
    for (const std::int64_t bytes : {whole * 3 / 4, 2 * whole, 3 * whole}) {
      expected += kernels.elementwise(Bytes{bytes}).seconds;
      low += kernels.elementwise(Bytes{bytes}).low;
    }
  }
  const InputGradients gradients = input_gradients(kernels, model, 1024, 4);
  EXPECT_NEAR(gradients.seconds, expected, 1e-15);
  EXPECT_NEAR(gradients.low, low, 1e-15);
  EXPECT_GT(gradients.high, gradients.seconds);
}

// A table of one gate; numbers as (case, strategy, quantity, published, predicted).
struct Made {
  std::string case_name, strategy;
  Q quantity;
  double published, predicted;
};

std::vector<GateLine> gates(PublishedGate gate, const std::vector<Made>& rows) {
  PublishedFigures figures;
  figures.tables.push_back({"t", gate, PublishedInputs::kOwn, "a paper", ""});
  std::vector<PublishedPrediction> predictions;
  for (const Made& row : rows) {
    PublishedNumber number;
    number.study = 0;
    number.case_name = row.case_name;
    number.strategy = row.strategy;
    number.over = "base";
    number.quantity = row.quantity;
    number.published = row.published;
    figures.numbers.push_back(number);
    PublishedPrediction one;
    one.predicted = row.predicted;
    one.error = row.predicted / row.published - 1;
    predictions.push_back(one);
  }
  return judge(figures, predictions).gates;
}

TEST(PublishedGates, PartsAndTotals) {
  const auto lines = gates(PublishedGate::kParts, {{"c", "a", Q::kGatherMs, 100, 114.9},
                                                   {"c", "a", Q::kScatterMs, 100, 115.1},
                                                   {"c", "a", Q::kTotalMs, 100, 90.1}});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].what, "every part within 15 %");
  EXPECT_EQ(lines[0].value, 1);
  EXPECT_EQ(lines[0].of, 2U);
  EXPECT_FALSE(lines[0].met());
  EXPECT_EQ(lines[1].what, "every total within 10 %");
  EXPECT_TRUE(lines[1].met());
}

// Cell 1: published winner b, predicted b. Cell 2: published none above 1, so the baseline; predicted a.
TEST(PublishedGates, SpeedupsByMedianAndWinner) {
  const auto lines = gates(PublishedGate::kSpeedups, {{"c", "a", Q::kSpeedup, 1.1, 1.1},
                                                      {"c", "b", Q::kSpeedup, 1.2, 1.5},
                                                      {"c", "a", Q::kSpeedupForward, 0.9, 1.01},
                                                      {"c", "b", Q::kSpeedupForward, 0.8, 0.8}});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NEAR(lines[0].value, 100 * (0 + 1.01 / 0.9 - 1) / 2, 1e-9);  // middle two of 0, 0, 12.2, 25
  EXPECT_TRUE(lines[0].met());
  EXPECT_EQ(lines[1].what, "same winner in 1 cells");
  EXPECT_EQ(lines[1].value, 1);
  EXPECT_TRUE(lines[1].met());
}

TEST(PublishedGates, EachNumber) {
  const auto lines =
      gates(PublishedGate::kEach, {{"c", "a", Q::kPerSecond, 100, 92.1}, {"c", "b", Q::kPerSecond, 100, 91}});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].what, "every number within 8 %");
  EXPECT_EQ(lines[0].value, 1);
  EXPECT_FALSE(lines[0].met());
}

// 100 and 107 lie 7 apart and are turned round; 107 and 120 are right; 114 and 120 lie 6 apart and do not count.
TEST(PublishedGates, OrderCountsGapsOnly) {
  const auto lines = gates(PublishedGate::kRates, {{"c", "a", Q::kTflopsForward, 100, 110},
                                                   {"c", "b", Q::kTflopsForward, 107, 105},
                                                   {"c", "c", Q::kTflopsForward, 120, 130},
                                                   {"d", "a", Q::kTflopsForward, 114, 130},
                                                   {"d", "b", Q::kTflopsForward, 120, 120}});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].what, "median error within 12 %");
  EXPECT_EQ(lines[1].of, 3U);
  EXPECT_EQ(lines[1].value, 2);
  EXPECT_FALSE(lines[1].met());
}

TEST(PublishedOutput, RowsThatAreNotReproducedSayWhy) {
  PublishedFigures figures;
  figures.tables.push_back({"t", PublishedGate::kNone, PublishedInputs::kOwn, "a paper", "their documents"});
  figures.numbers.resize(2);
  figures.numbers[0].published = 2;
  figures.numbers[1].published = 3;
  std::vector<PublishedPrediction> predictions(2);
  predictions[1].refused = "one GPU";
  const PublishedAccuracy judged = judge(figures, predictions);
  EXPECT_EQ(judged.summaries.front().reproduced, 0U);
  EXPECT_TRUE(judged.gates.empty());
  const std::string text = published_table(figures, predictions, judged);
  EXPECT_THAT(text, HasSubstr("needs: their documents"));
  EXPECT_THAT(text, HasSubstr("needs: one GPU"));
  const Json json = Json::parse(published_json(figures, predictions, judged));
  EXPECT_EQ(json["table"], "context-parallel");
  EXPECT_EQ(json["tables"][0]["needs"], "their documents");
  EXPECT_EQ(json["tables"][0]["numbers"][0]["needs"], "their documents");
  EXPECT_EQ(json["tables"][0]["numbers"][1]["needs"], "one GPU");
  EXPECT_FALSE(json["tables"][0]["numbers"][0].contains("predicted"));
  EXPECT_THAT(published_csv(figures, predictions, judged),
              HasSubstr("number,t,,,,,,total_ms,2,,,,,,their documents\n"));
}

// The text of a reproduced row and of its gate: 115 for 100 is within 15 %, and a total 15 % too long is not within 10.
TEST(PublishedOutput, GatesSayPassOrMiss) {
  PublishedFigures figures;
  figures.tables.push_back({"t", PublishedGate::kParts, PublishedInputs::kOwn, "a paper", "their copies"});
  figures.numbers.resize(2);
  std::vector<PublishedPrediction> predictions(2);
  for (std::size_t i = 0; i < 2; ++i) {
    figures.numbers[i].what = "Per-Doc";
    figures.numbers[i].quantity = i == 0 ? Q::kGatherMs : Q::kTotalMs;
    figures.numbers[i].published = 100;
    predictions[i] = {115.0, 110, 120, 0.15, ""};
  }
  const PublishedAccuracy judged = judge(figures, predictions);
  const std::string text = published_table(figures, predictions, judged);
  EXPECT_THAT(text, HasSubstr("gather_ms                      100.0     115.0     110.0-120.0    +15.0\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("every part within 15 % +1 of 1  pass\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("every total within 10 % +0 of 1  MISS\n"));
  EXPECT_THAT(text, HasSubstr("2 numbers, 2 reproduced; error in %: median 15.0, 90th percentile 15.0, bias +15.0"));
  const std::string csv = published_csv(figures, predictions, judged);
  EXPECT_THAT(csv, HasSubstr("gate,t,every part within 15 %,,,,,hold,1,1,,,,yes,\n"));
  EXPECT_THAT(csv, HasSubstr("gate,t,every total within 10 %,,,,,hold,1,0,,,,no,their copies\n"));
}

}  // namespace
}  // namespace longhaul
