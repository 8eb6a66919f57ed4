// DPP's grouping of sequences into sequential pipelines (dpp.md 4.3, Eq. 14).
//
// Sequences are classed by slice count. A pipeline takes consecutive classes, and its longest sequence sets its window
// (Eq. 7): short sequences in the pipeline of a long one inherit a larger window. With recompute fixed, the price of a
// pipeline is its fill delta, and a pipeline whose window does not fit in memory costs infinity.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/strategies/pipeline/order.h"

namespace longhaul {

// Classes [first, last] (by index, ascending slice count) that share a pipeline.
struct ClassRange {
  std::int32_t first = 0;
  std::int32_t last = 0;
  bool operator==(const ClassRange&) const = default;
};

struct Grouping {
  std::vector<ClassRange> pipelines;  // ascending, together every class; empty if no grouping is feasible
  double seconds = 0;                 // sum of the costs; infinity if none is feasible
};

// dp[0] = 0; dp[i+1] = min over k <= i of dp[k] + cost(k, i) (Eq. 14). `cost` of classes [k, i] in one pipeline, in
// seconds, infinity if infeasible; called at most n(n+1)/2 times. Ties go to the larger pipeline.
Grouping group_classes(std::int32_t classes, const std::function<double(ClassRange)>& cost);

// Most rows that stage 0 keeps alive at once over W_p(t) of dpp.md 4.4; `rows[chunk]` of the stream's chunks, the first
// being stream.first_chunk.
std::int64_t peak_live_rows(std::int32_t stages, const PipelineStream& stream, const std::vector<std::int64_t>& rows);

}  // namespace longhaul
