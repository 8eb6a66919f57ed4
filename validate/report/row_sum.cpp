#include "validate/report/row_sum.h"

#include <algorithm>
#include <cmath>

namespace longhaul {

void RowSum::Predicted::add(const PredictedOp& op, double collective_half_width) {
  const double time = op.time.seconds();
  seconds += time;
  if (op.kind == OpKind::kCollective) {
    below[kTransfers] += time * collective_half_width;
    above[kTransfers] += time * collective_half_width;
    return;
  }
  const auto kind = static_cast<std::size_t>(op.kernel);
  below[kind] += time - op.low.seconds();
  above[kind] += op.high.seconds() - time;
}

void RowSum::Predicted::write(ComparedRow& row) const {
  const auto width = [](const auto& parts) {
    double squares = 0;
    for (const double part : parts) squares += part * part;
    return std::sqrt(squares);
  };
  row.predicted = seconds;
  row.predicted_low = std::max(0.0, seconds - width(below));
  row.predicted_high = seconds + width(above);
}

void RowSum::add(const PairedOp& pair) {
  if (pair.seconds.size() != seconds_.size()) {
    model_.add(*pair.predicted, collective_half_width_);
    ++unmeasured_;
    return;
  }
  measured_.add(*pair.predicted, collective_half_width_);
  for (std::size_t r = 0; r < seconds_.size(); ++r) seconds_[r] += pair.seconds[r];
  ++calls_;
}

ComparedRow RowSum::row(const std::string& name) const {
  ComparedRow row;
  row.name = name;
  if (calls_ == 0) {
    row.source = Source::kModel;
    row.calls = unmeasured_;
    model_.write(row);
    return row;
  }
  row.calls = calls_;
  measured_.write(row);
  const MedianInterval median = median_interval(seconds_, kMeasuredConfidence);
  row.measured = median.median;
  row.measured_low = median.low;
  row.measured_high = median.high;
  row.bounded = median.bounded;
  return row;
}

}  // namespace longhaul
