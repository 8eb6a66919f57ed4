#include "sim/analysis/lower_bound.h"

#include <algorithm>
#include <map>
#include <utility>

namespace longhaul {
namespace {

// Kernel time of one pass over a segment: of ops that always run, and of those that the first or last layer leaves out.
struct PassTime {
  Time always;
  Time not_first;
  Time not_last;
  Time over(std::int16_t iterations) const {
    const std::int64_t all = iterations;
    return Time::from_ps(always.ps() * all + (not_first.ps() + not_last.ps()) * (all - 1));
  }
};

PassTime pass_time(const Schedule& schedule, const OpDurations& durations, std::int32_t rank, const Block& block) {
  PassTime time;
  const Segment& segment = schedule.segments[static_cast<std::size_t>(block.segment)];
  OpInstance at;
  at.shape = block.chunk >= 0 ? &schedule.shape(rank, block.chunk) : nullptr;
  at.rank = rank;
  at.chunk = block.chunk;
  at.layer = block.first_layer;
  at.segment = block.segment;
  for (std::size_t index = 0; index < segment.ops.size(); ++index) {
    at.op = &segment.ops[index];
    at.index = static_cast<std::int16_t>(index);
    if (at.op->kind == OpKind::kCollective || at.op->stream != kComputeStream || is_empty(schedule, at)) continue;
    const Time alone = durations.duration(schedule, at).time;
    if (at.op->guard == Guard::kAlways) time.always += alone;
    if (at.op->guard == Guard::kNotFirstIteration) time.not_first += alone;
    if (at.op->guard == Guard::kNotLastIteration) time.not_last += alone;
  }
  return time;
}

}  // namespace

Time compute_lower_bound(const Schedule& schedule, const OpDurations& durations) {
  std::map<std::pair<ShapeId, SegmentId>, PassTime> known;  // durations depend on shape and op alone
  Time busiest;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const RankInfo& info = schedule.ranks[rank];
    if (info.representative >= 0 && info.representative != static_cast<std::int32_t>(rank)) continue;
    Time busy;
    for (const Block& block : schedule.programs[static_cast<std::size_t>(info.program)].blocks) {
      const ShapeId shape = block.chunk >= 0 ? info.shapes[static_cast<std::size_t>(block.chunk)] : -1;
      auto [entry, is_new] = known.try_emplace({shape, block.segment});
      if (is_new) entry->second = pass_time(schedule, durations, static_cast<std::int32_t>(rank), block);
      busy += entry->second.over(block.iterations);
    }
    busiest = std::max(busiest, busy);
  }
  return busiest;
}

}  // namespace longhaul
