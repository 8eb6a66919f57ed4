// Errors of the published figures of context parallelism may not grow unseen: what was reached, with a little room
// (docs/accuracy-log.md). A change that loses it must say so there.
#include "validate/accuracy/context_parallel.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/core/data_files.h"

namespace longhaul {
namespace {

struct All {
  PublishedFigures figures;
  std::vector<PublishedPrediction> predictions;
  PublishedAccuracy accuracy;
};

const All& all() {
  static const All out = [] {
    All made;
    auto figures = read_published(data_directory() + "/validate/data/published");
    EXPECT_TRUE(figures);
    if (!figures) return made;
    made.figures = std::move(*figures);
    made.predictions = predict_published(made.figures, 2);
    made.accuracy = judge(made.figures, made.predictions);
    return made;
  }();
  return out;
}

const PublishedSummary& summary(const std::string& table) {
  for (const PublishedSummary& one : all().accuracy.summaries) {
    if (one.table == table) return one;
  }
  static const PublishedSummary none;
  ADD_FAILURE() << table;
  return none;
}

const GateLine& gate(const std::string& table, const std::string& what) {
  for (const GateLine& one : all().accuracy.gates) {
    if (one.table == table && one.what.starts_with(what)) return one;
  }
  static const GateLine none;
  ADD_FAILURE() << table << ", " << what;
  return none;
}

double predicted(const std::string& case_name, const std::string& strategy, PublishedQuantity quantity) {
  for (std::size_t i = 0; i < all().predictions.size(); ++i) {
    const PublishedNumber& number = all().figures.numbers[i];
    if (number.case_name == case_name && number.strategy == strategy && number.quantity == quantity) {
      return all().predictions[i].predicted.value_or(0);
    }
  }
  ADD_FAILURE() << case_name << ", " << strategy;
  return 0;
}

TEST(PublishedContextParallel, EveryRowWithAStudyIsReproduced) {
  std::size_t reproduced = 0;
  for (std::size_t i = 0; i < all().predictions.size(); ++i) {
    const PublishedPrediction& one = all().predictions[i];
    EXPECT_EQ(one.predicted.has_value(), all().figures.numbers[i].study >= 0) << i << ": " << one.refused;
    if (!one.predicted) continue;
    ++reproduced;
    EXPECT_LE(one.low, *one.predicted);
    EXPECT_LE(*one.predicted, one.high);
    EXPECT_GT(one.low, 0);
  }
  EXPECT_EQ(all().predictions.size(), 351U);
  EXPECT_EQ(reproduced, 187U);
}

TEST(PublishedContextParallel, ErrorsDoNotGrow) {
  EXPECT_LT(summary("flashcp-fig6-pile").median, 3.5);
  EXPECT_LT(summary("flashcp-fig5-pile").median, 10);
  EXPECT_LT(summary("flashcp-fig5-pile").p90, 22);
  EXPECT_LT(summary("ring-flash-attention-a100").median, 2.5);
  EXPECT_LT(summary("magiattention-h100").median, 4.5);
  EXPECT_LT(summary("usp-a100").median, 8);
  EXPECT_LT(summary("flashcp-fig5-wlb").median, 7.8);
  EXPECT_LT(summary("wlb-llm-layer").median, 9.1);
  EXPECT_LT(summary("flashcp-fig6-wlb").median, 26);
  EXPECT_LT(summary("flashcp-fig7").median, 6);
}

TEST(PublishedContextParallel, WhatHoldsIsKept) {
  EXPECT_GE(gate("flashcp-fig6-pile", "every part").value, 15);
  EXPECT_GE(gate("flashcp-fig6-pile", "every total").value, 3);
  EXPECT_GE(gate("flashcp-fig5-pile", "same winner").value, 8);
  EXPECT_GE(gate("ring-flash-attention-a100", "every number").value, 8);
  EXPECT_LT(gate("magiattention-h100", "median").value, 12);
  EXPECT_GE(gate("magiattention-h100", "order").value, 109);
}

// Two rows that no sampling touches, gathers of one long document and a ring: within 2 %, as kernels are refitted.
TEST(PublishedContextParallel, TwoRowsAreKept) {
  const double full = predicted("full-8", "te-allgather", PublishedQuantity::kTflopsForward);
  const double ring = predicted("a100-batch", "zigzag-cp", PublishedQuantity::kPerSecondForward);
  EXPECT_NEAR(full, 598.0, 0.02 * full);
  EXPECT_NEAR(ring, 39.8, 0.02 * ring);
}

}  // namespace
}  // namespace longhaul
