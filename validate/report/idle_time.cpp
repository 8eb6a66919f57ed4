#include "validate/report/idle_time.h"

#include <algorithm>
#include <utility>

#include "validate/report/repeats.h"

namespace longhaul {
namespace {

using Span = std::pair<std::int64_t, std::int64_t>;

// Sorted, without overlaps.
std::vector<Span> joined(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end());
  std::vector<Span> result;
  for (const Span& span : spans) {
    if (!result.empty() && span.first <= result.back().second) {
      result.back().second = std::max(result.back().second, span.second);
    } else {
      result.push_back(span);
    }
  }
  return result;
}

std::int64_t length(const std::vector<Span>& spans) {
  std::int64_t sum = 0;
  for (const Span& span : spans) sum += span.second - span.first;
  return sum;
}

}  // namespace

std::vector<double> idle_in_communication(const RunRecord& record, std::int32_t rank) {
  std::vector<double> idle;
  for (std::size_t r = 0; r < static_cast<std::size_t>(record.repeats); ++r) {
    std::vector<Span> communication, compute;
    for (const MeasuredOp& op : record.ops) {
      if (op.rank != rank || op.communication || r >= op.start_ps.size()) continue;
      if (op.kind == OpKind::kCollective) communication.push_back({op.start_ps[r], op.end_ps[r]});
      if (op.stream == kComputeStream) compute.push_back({op.start_ps[r], op.end_ps[r]});
    }
    if (communication.empty()) return {};
    // |communication without compute| = |both together| - |compute|.
    std::vector<Span> both = communication;
    both.insert(both.end(), compute.begin(), compute.end());
    idle.push_back(static_cast<double>(length(joined(std::move(both))) - length(joined(std::move(compute)))) * 1e-12);
  }
  return idle;
}

double drift_of(std::span<const double> seconds) {
  constexpr std::size_t kLeast = 6;
  if (seconds.size() < kLeast) return 0;
  const std::size_t third = seconds.size() / 3;
  constexpr double kAnyConfidence = 0.5;  // only the medians are used
  const double first = median_interval(seconds.first(third), kAnyConfidence).median;
  const double last = median_interval(seconds.last(third), kAnyConfidence).median;
  return first > 0 ? last / first - 1 : 0;
}

}  // namespace longhaul
