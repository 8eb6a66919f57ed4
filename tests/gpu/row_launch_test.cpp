// How calls on rows become launches, and what they refuse. Needs no GPU.
#include "validate/device/cuda/row_launch.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "validate/device/cuda/row_attention.h"

namespace longhaul {
namespace {

// Threads take 16 bytes at once: one row of a list may start anywhere that the stride leads to, as rows of 10 fp32
// numbers do; alone, without a list, it starts at the front.
TEST(RowLaunches, ByEightsWhereEveryRowStartsAtSixteenBytes) {
  alignas(16) static std::byte memory[64];
  static const std::int32_t index[1] = {1};
  const auto groups = [](const DeviceRows& rows) {
    std::vector<std::pair<int, std::int64_t>> launches;
    for (const RowLaunch& each : row_launches({rows})) {
      EXPECT_EQ(each.rows.front().columns % each.group, 0);
      launches.emplace_back(each.group, each.rows.front().columns);
    }
    return launches;
  };
  using Launches = std::vector<std::pair<int, std::int64_t>>;
  EXPECT_EQ(groups({memory, nullptr, true, 0, 8, 8}), Launches{});
  EXPECT_EQ(groups({memory, nullptr, true, 3, 16, 24}), (Launches{{8, 16}}));
  EXPECT_EQ(groups({memory, nullptr, true, 3, 16, 20}), (Launches{{1, 16}}));
  EXPECT_EQ(groups({memory + 2, nullptr, true, 3, 16, 24}), (Launches{{1, 16}}));
  EXPECT_EQ(groups({memory, nullptr, true, 3, 10, 10}), (Launches{{8, 24}, {1, 6}})) << "one row of 30";
  EXPECT_EQ(groups({memory, nullptr, true, 1, 16, 20}), (Launches{{8, 16}}));
  EXPECT_EQ(groups({memory, index, true, 1, 16, 20}), (Launches{{1, 16}}));
  EXPECT_EQ(groups({memory, index, false, 1, 10, 10}), (Launches{{1, 10}}));
  EXPECT_EQ(groups({memory, index, false, 1, 10, 16}), (Launches{{8, 8}, {1, 2}}));
  const RowLaunch rest = row_launches({{memory, nullptr, false, 1, 10, 10}}).back();
  EXPECT_EQ(rest.rows.front().data, memory + 32);
}

// 2^32 - 1 groups in a row are counted, one more is not.
TEST(RowLaunches, WhatThirtyTwoBitsCannotCountIsRefused) {
  alignas(16) static std::byte memory[16];
  const std::int64_t most = (std::int64_t{1} << 32) - 1;
  EXPECT_EQ(row_launches({{memory, nullptr, true, 1, 8 * most, 8 * most}}).front().group, 8);
  EXPECT_EQ(row_launches({{memory + 2, nullptr, true, 1, most, most}}).front().group, 1);
  std::string text;
  try {
    row_launches({{memory + 2, nullptr, true, 2, most, most}});
  } catch (const std::invalid_argument& error) {
    text = error.what();
  }
  EXPECT_EQ(text, "rows: 1 rows of 8589934590 groups of 1; supported are fewer than 2^32 of both");
}

TEST(RowAttentionShapes, OthersAreRefused) {
  const auto refusal = [](std::int64_t q_heads, std::int64_t kv_heads, std::int64_t head_dim) -> std::string {
    RowAttention problem;
    problem.q_heads = q_heads;
    problem.kv_heads = kv_heads;
    problem.head_dim = head_dim;
    try {
      row_attention(problem, nullptr);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(6, 2, 256), "");
  EXPECT_EQ(refusal(6, 4, 64),
            "row_attention: 6 query heads for 4 key heads of dimension 64; each key head serves the same number of "
            "query heads, and dimensions are multiples of 8 up to 256");
  for (const std::int64_t dim : {0, 12, 264}) EXPECT_NE(refusal(2, 1, dim), "") << dim;
  EXPECT_NE(refusal(0, 1, 64), "");
  EXPECT_NE(refusal(1, 0, 64), "");
}

}  // namespace
}  // namespace longhaul
