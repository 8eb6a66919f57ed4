#include "validate/report/double_timeline.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "sim/schedule/op_kind_name.h"

namespace longhaul {
namespace {

using OpKey = std::tuple<std::int32_t, SegmentId, std::int16_t, std::int32_t, std::int16_t>;

// The repeat whose step is the median one (the lower of two); 0 where no steps were timed.
std::size_t median_repeat(const RunRecord& record) {
  if (record.step_ps.empty()) return 0;
  std::vector<std::size_t> order(record.step_ps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return record.step_ps[a] < record.step_ps[b]; });
  return order[(order.size() - 1) / 2];
}

void place_measured(const RunRecord& record, std::vector<DoubleOp>& ops, const std::vector<PredictedOp>& predicted) {
  std::map<std::pair<std::int32_t, std::int32_t>, const MeasuredOp*> measured;
  for (const MeasuredOp& op : record.ops) measured.emplace(std::pair{op.rank, op.position}, &op);
  const std::size_t repeat = median_repeat(record);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto found = measured.find({predicted[i].rank, predicted[i].position});
    if (found == measured.end() || repeat >= found->second->start_ps.size()) continue;
    ops[i].measured = {Time::from_ps(found->second->start_ps[repeat]), Time::from_ps(found->second->end_ps[repeat])};
  }
}

void place_composed(const ComposedStep& composed, std::vector<DoubleOp>& ops,
                    const std::vector<PredictedOp>& predicted) {
  std::map<OpKey, std::vector<const OpRecord*>> records;
  for (const OpRecord& op : composed.timeline.ops) {
    records[{op.rank, op.segment, op.index, op.chunk, op.layer}].push_back(&op);
  }
  std::map<OpKey, std::size_t> used;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const PredictedOp& op = predicted[i];
    const OpKey key{op.rank, op.segment, op.index, op.chunk, op.layer};
    const auto found = records.find(key);
    const std::size_t nth = used[key]++;
    if (found == records.end() || nth >= found->second.size()) continue;
    ops[i].measured = {found->second[nth]->start, found->second[nth]->end};
    ops[i].modelled = op.kind == OpKind::kCollective;
  }
}

}  // namespace

DoubleTimeline double_timeline(const Prediction& prediction, const RunRecord& record, const ComposedStep* composed) {
  DoubleTimeline result;
  result.streams = prediction.streams;
  for (const PredictedOp& op : prediction.ops) {
    DoubleOp one;
    one.rank = op.rank;
    one.stream = op.stream;
    one.label = op.label;
    one.kind = op_kind_name(op.kind);
    one.pass = to_string(op.pass);
    one.shape = op.shape;
    one.chunk = op.chunk;
    one.layer = op.layer;
    one.predicted = {op.start, op.end};
    result.ops.push_back(std::move(one));
  }
  if (composed != nullptr) {
    place_composed(*composed, result.ops, prediction.ops);
  } else {
    place_measured(record, result.ops, prediction.ops);
  }
  return result;
}

}  // namespace longhaul
