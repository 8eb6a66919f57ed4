#include "validate/report/composed_step.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "sim/executor/simulate.h"
#include "validate/report/repeats.h"

namespace longhaul {
namespace {

// What the executor asks once for: a shape, a segment, an op.
using ShapeKey = std::tuple<ShapeId, SegmentId, std::int16_t>;

ShapeKey shape_key(const Schedule& schedule, std::int32_t rank, std::int32_t chunk, SegmentId segment,
                   std::int16_t index) {
  constexpr ShapeId kNoShape = -1;  // ops without a chunk: the optimizer's, whose sizes the template fixes
  const RankInfo& info = schedule.ranks[static_cast<std::size_t>(rank)];
  return {chunk < 0 ? kNoShape : info.shapes[static_cast<std::size_t>(chunk)], segment, index};
}

enum class Bound { kLow, kMedian, kHigh };

class MeasuredDurations : public OpDurations {
 public:
  MeasuredDurations(const CaseSetup& setup, const std::map<ShapeKey, MedianInterval>& seconds, Bound bound)
      : model_(setup.kernels), seconds_(&seconds), bound_(bound) {}

  OpDuration duration(const Schedule& schedule, const OpInstance& at) const override {
    OpDuration duration = model_.duration(schedule, at);
    const auto found = seconds_->find(shape_key(schedule, at.rank, at.chunk, at.segment, at.index));
    if (found == seconds_->end()) return duration;
    const MedianInterval& of = found->second;
    duration.time = Time::from_seconds(bound_ == Bound::kMedian ? of.median : bound_ == Bound::kLow ? of.low : of.high);
    return duration;
  }
  Time launch() const override { return model_.launch(); }
  double kernel_slowdown(OverlapClass kernel, const Beside& beside, std::int64_t tiles) const override {
    return model_.kernel_slowdown(kernel, beside, tiles);
  }
  double transfer_slowdown(OverlapClass beside) const override { return model_.transfer_slowdown(beside); }
  bool holds_transfers(OverlapClass kernel) const override { return model_.holds_transfers(kernel); }

 private:
  KernelDurations model_;
  const std::map<ShapeKey, MedianInterval>* seconds_;
  Bound bound_;
};

// Seconds of each shape: the median over ranks, layers, chunks and repeats. Kernels that a device ran in no time at all
// (below the resolution of its events) count as a picosecond, not as unmeasured.
std::map<ShapeKey, MedianInterval> measured_seconds(const Schedule& schedule, const RunRecord& record,
                                                    double confidence) {
  std::map<ShapeKey, std::vector<double>> values;
  for (const MeasuredOp& op : record.ops) {
    if (op.kind == OpKind::kCollective) continue;
    std::vector<double>& of = values[shape_key(schedule, op.rank, op.chunk, op.segment, op.index)];
    for (std::size_t i = 0; i < op.start_ps.size(); ++i) {
      of.push_back(std::max(1e-12, static_cast<double>(op.end_ps[i] - op.start_ps[i]) * 1e-12));
    }
  }
  std::map<ShapeKey, MedianInterval> seconds;
  for (const auto& [key, of] : values) {
    if (!of.empty()) seconds.emplace(key, median_interval(of, confidence));
  }
  return seconds;
}

}  // namespace

ComposedStep compose_step(const CaseSetup& setup, const Prediction& prediction, const RunRecord& record,
                          double confidence) {
  const Schedule& schedule = *prediction.schedule;
  const std::map<ShapeKey, MedianInterval> seconds = measured_seconds(schedule, record, confidence);
  ComposedStep step;
  for (const PredictedOp& op : prediction.ops) {
    if (op.kind == OpKind::kCollective) continue;
    if (!seconds.contains(shape_key(schedule, op.rank, op.chunk, op.segment, op.index))) ++step.modelled_kernels;
  }
  const auto run = [&](Bound bound, TimelineSink* sink) {
    const MeasuredDurations durations(setup, seconds, bound);
    const std::unique_ptr<CollectiveNetwork> network = make_flow_network(setup.cluster);
    SimulationOptions options;
    options.unfolded = true;
    options.sink = sink;
    if (sink != nullptr) {
      for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        options.trace.ranks.push_back(static_cast<std::int32_t>(rank));
      }
    }
    return simulate(schedule, durations, *network, options);
  };
  step.totals = run(Bound::kMedian, &step.timeline);
  step.low = run(Bound::kLow, nullptr);
  step.high = run(Bound::kHigh, nullptr);
  return step;
}

}  // namespace longhaul
