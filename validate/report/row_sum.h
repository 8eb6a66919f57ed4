// Sums paired ops into one row of a comparison.
//
// Predictions of one kernel kind err together: their half widths add; kinds, and transfers, err apart: quadrature.
// Units: seconds. An op that was not measured adds nothing to either side and is counted.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "validate/report/comparison.h"
#include "validate/report/op_pairs.h"

namespace longhaul {

class RowSum {
 public:
  // `collective_half_width`: relative, of transfers.
  RowSum(std::size_t repeats, double collective_half_width)
      : seconds_(repeats, 0.0), collective_half_width_(collective_half_width) {}

  void add(const PairedOp& pair);
  const std::vector<double>& seconds() const { return seconds_; }  // by repeat
  std::int64_t unmeasured() const { return unmeasured_; }
  // Nothing was measured: a row of Source::kModel with the predictions that were left out.
  ComparedRow row(const std::string& name) const;

 private:
  static constexpr std::size_t kTransfers = kKernelKindCount;  // behind the kernel kinds
  struct Predicted {
    double seconds = 0;
    std::array<double, kKernelKindCount + 1> below{}, above{};
    void add(const PredictedOp& op, double collective_half_width);
    void write(ComparedRow& row) const;
  };

  std::vector<double> seconds_;
  double collective_half_width_;
  Predicted measured_, model_;  // predictions of measured ops, and of the others
  std::int64_t calls_ = 0, unmeasured_ = 0;
};

}  // namespace longhaul
