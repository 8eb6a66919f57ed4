#include "sim/study/trace_ranks.h"

#include <algorithm>
#include <set>

namespace longhaul {
namespace {

std::int32_t running(const Schedule& schedule, std::int32_t rank) {
  const std::int32_t representative = schedule.ranks[static_cast<std::size_t>(rank)].representative;
  return representative < 0 ? rank : representative;
}

std::int32_t slowest_of(const Totals& totals, std::int32_t first, std::int32_t end) {
  std::int32_t slowest = first;
  for (std::int32_t rank = first + 1; rank < end; ++rank) {
    if (totals.ranks[static_cast<std::size_t>(rank)].busy() > totals.ranks[static_cast<std::size_t>(slowest)].busy()) {
      slowest = rank;
    }
  }
  return slowest;
}

}  // namespace

EntryTrace choose_trace(const Schedule& schedule, const Totals& totals, const Cluster& cluster, StrategyFamily family,
                        TraceMode mode) {
  EntryTrace trace;
  trace.chunks = INT32_MAX;
  if (mode == TraceMode::kCritical) {
    trace.ranks = {running(schedule, totals.critical_rank)};
    return trace;
  }
  std::set<std::int32_t> ranks;
  const int last_node = cluster.node_of(totals.critical_rank);
  for (int node = 0; node < cluster.nodes(); ++node) {
    const std::int32_t first = node * cluster.gpus_per_node();
    const std::int32_t end = std::min(first + cluster.gpus_per_node(), cluster.gpus());
    if (mode == TraceMode::kAll) {
      for (std::int32_t rank = first; rank < end; ++rank) ranks.insert(running(schedule, rank));
    } else if (node < kTracedNodes || node == last_node) {
      ranks.insert(running(schedule, first));
      ranks.insert(running(schedule, slowest_of(totals, first, end)));
    } else {
      ++trace.nodes_left_out;
    }
  }
  trace.ranks.assign(ranks.begin(), ranks.end());
  if (mode == TraceMode::kChosen) trace.chunks = family == StrategyFamily::kPipeline ? kTracedPipelineChunks : 1;
  return trace;
}

}  // namespace longhaul
