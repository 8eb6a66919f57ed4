// Comparison of what an attention path wrote with the reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/common/bf16.h"

namespace longhaul {

inline std::vector<double> widened(std::span<const Bf16> values) {
  std::vector<double> result;
  for (const Bf16 value : values) result.push_back(static_cast<double>(to_float(value)));
  return result;
}
inline std::vector<double> widened(std::span<const float> values) { return {values.begin(), values.end()}; }

// Each within `bound`; equal infinities are. NaN never passes.
inline void expect_each_near(const std::vector<double>& got, const std::vector<double>& want, double bound,
                             const char* what) {
  ASSERT_EQ(got.size(), want.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || std::abs(got[i] - want[i]) <= bound) continue;
    if (++wrong < 6) ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", want " << want[i] << " +- " << bound;
  }
  EXPECT_EQ(wrong, 0U) << "of " << got.size() << " in " << what;
}

// ||got - want|| / ||want||, all elements together, at most `bound`.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& want, double bound,
                         const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  const double error = size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
  EXPECT_TRUE(error <= bound) << what << ": relative error " << error << ", allowed " << bound;
}

}  // namespace longhaul
