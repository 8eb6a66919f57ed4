// Whether predictions put strategies in the right order: what a simulator is asked for.
//
// Two runs can be compared if they are of one study, case, device, placement and rank count. What is compared is the
// kernel time of the slowest rank. A pair counts where the measured intervals (95 %) do not overlap; the others are too
// close to tell. Of those that count, a pair is beyond the prediction's interval if the 90 % interval of the predicted
// ratio (errors that both share cancel) excludes 1, so that the prediction claims an order, or if the measured ratio is
// further from 1 than that interval is wide, so that it should have. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "validate/report/comparison.h"

namespace longhaul {

struct OrderedPair {
  std::string study, study_case, device;
  std::int32_t ranks = 0;
  std::string faster, slower;  // as measured
  double measured_ratio = 1;   // slower / faster
  double predicted_ratio = 1;
  double predicted_low = 1, predicted_high = 1;  // 90 %, of the predicted ratio
  bool right() const { return predicted_ratio > 1; }
  // Whether the two differ by more than the interval of the predicted ratio.
  bool beyond() const {
    const bool claimed = predicted_low > 1 || predicted_high < 1;
    return claimed || measured_ratio > 1 + (predicted_high / predicted_ratio - 1);
  }
};

struct Orders {
  std::vector<OrderedPair> pairs;  // that differ, in the order of the runs
  int too_close = 0;
};

Orders compare_orders(const std::vector<Comparison>& runs);

}  // namespace longhaul
