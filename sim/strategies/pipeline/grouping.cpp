#include "sim/strategies/pipeline/grouping.h"

#include <algorithm>
#include <limits>

#include "sim/core/invariant.h"

namespace longhaul {

Grouping group_classes(std::int32_t classes, const std::function<double(ClassRange)>& cost) {
  LH_ASSERT(classes >= 1, "{} classes", classes);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> best(static_cast<std::size_t>(classes) + 1, kInfinity);
  std::vector<std::int32_t> start(static_cast<std::size_t>(classes) + 1, -1);
  best[0] = 0;
  for (std::int32_t last = 0; last < classes; ++last) {
    const auto end = static_cast<std::size_t>(last) + 1;
    for (std::int32_t first = 0; first <= last; ++first) {
      const double before = best[static_cast<std::size_t>(first)];
      if (before == kInfinity) continue;
      const double total = before + cost({first, last});
      if (total < best[end]) {
        best[end] = total;
        start[end] = first;
      }
    }
  }
  Grouping grouping;
  grouping.seconds = best.back();
  if (grouping.seconds == kInfinity) return grouping;
  for (std::int32_t end = classes; end > 0;) {
    const std::int32_t first = start[static_cast<std::size_t>(end)];
    grouping.pipelines.push_back({first, end - 1});
    end = first;
  }
  std::reverse(grouping.pipelines.begin(), grouping.pipelines.end());
  return grouping;
}

std::int64_t peak_live_rows(std::int32_t stages, const PipelineStream& stream, const std::vector<std::int64_t>& rows) {
  LH_ASSERT(rows.size() == static_cast<std::size_t>(stream.chunks()), "rows of {} chunks for {}", rows.size(),
            stream.chunks());
  const auto warm_up = static_cast<std::size_t>(warm_up_forwards(stages, 0, stream.chunks(), stream.n_split()));
  std::int64_t live = 0;
  std::size_t forwards = 0;
  for (; forwards < warm_up; ++forwards) live += rows[forwards];
  std::int64_t peak = live;
  for (const std::int32_t chunk : backward_order(stream)) {
    if (forwards < rows.size()) live += rows[forwards++];
    peak = std::max(peak, live);
    live -= rows[static_cast<std::size_t>(chunk - stream.first_chunk)];
  }
  return peak;
}

}  // namespace longhaul
