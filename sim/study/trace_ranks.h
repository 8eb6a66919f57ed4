// Which ranks and chunks of a run are traced.
//
// kChosen: the first and the slowest rank (largest compute, the lowest of equal ones) of each of the first 16 nodes and
// of the node of the rank that ends last; a folded rank is replaced by its representative. One micro-batch; for
// pipelines the first eight chunks. kCritical: one rank, all chunks. More nodes than that make traces that no viewer
// opens: kAll takes everything.
#pragma once

#include "sim/study/entry_run.h"

namespace longhaul {

inline constexpr int kTracedNodes = 16;
inline constexpr std::int32_t kTracedPipelineChunks = 8;

// Everything but the records and the schedule.
EntryTrace choose_trace(const Schedule& schedule, const Totals& totals, const Cluster& cluster, StrategyFamily family,
                        TraceMode mode);

}  // namespace longhaul
