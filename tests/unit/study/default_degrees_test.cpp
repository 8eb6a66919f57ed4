// Degrees that a study leaves out: what the strategies' defaults make of GPUs, nodes and heads.
#include <gtest/gtest.h>

#include "sim/strategies/strategy.h"

namespace longhaul {
namespace {

ModelShape model_of(std::int64_t q_heads, std::int64_t kv_heads, std::int64_t layers) {
  ModelShape model;
  model.q_heads = q_heads;
  model.kv_heads = kv_heads;
  model.layers = layers;
  return model;
}

Degrees sequence(int ranks, std::int64_t q_heads, std::int64_t kv_heads) {
  return resolve_degrees(StrategyFamily::kSequence, {}, ranks, 8, model_of(q_heads, kv_heads, 32)).value();
}

// 24 heads on 16 GPUs: 16 does not divide 24, 8 does. 32 query and 6 K/V heads are no model that is read (6 does not
// divide 32), but 24 and 6 are: of the divisors of 16, 8 neither divides 6 nor is a multiple of it, nor 4; 2 divides
// it.
TEST(DefaultDegrees, HeadsSpreadEvenlyOverSp) {
  EXPECT_EQ(sequence(16, 24, 24), (Degrees{1, 1, 8, 2}));
  EXPECT_EQ(sequence(16, 24, 6), (Degrees{1, 1, 2, 8}));
  EXPECT_EQ(sequence(16, 32, 8), (Degrees{1, 1, 16, 1})) << "each K/V head on two GPUs";
  EXPECT_EQ(sequence(64, 32, 8), (Degrees{1, 1, 32, 2}));
  EXPECT_EQ(sequence(8, 7, 7), (Degrees{1, 1, 1, 8}));
}

TEST(DefaultDegrees, PipelinesShareStagesInsideNodes) {
  const auto pipeline = [](std::int64_t q_heads, std::int64_t kv_heads) {
    return resolve_degrees(StrategyFamily::kPipeline, {}, 32, 8, model_of(q_heads, kv_heads, 32)).value();
  };
  EXPECT_EQ(pipeline(32, 8), (Degrees{4, 1, 8, 1}));
  EXPECT_EQ(pipeline(28, 4), (Degrees{4, 1, 4, 2})) << "8 does not divide 28 heads";
  EXPECT_EQ(pipeline(24, 6), (Degrees{4, 1, 2, 4}));
}

TEST(DefaultDegrees, WhatIsWrittenStays) {
  Layout layout;
  layout.dp = 4;
  EXPECT_EQ(resolve_degrees(StrategyFamily::kSequence, layout, 16, 8, model_of(24, 24, 32)).value(),
            (Degrees{1, 1, 4, 4}));
}

}  // namespace
}  // namespace longhaul
