// The weights of a pipeline stage under ZeRO 3: gathered once a step or for every chunk, and what the latter costs.
//
// The schedule and the planners' cost model share the decision. Seconds are those of each collective alone, one
// after another.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/strategies/strategy.h"

namespace longhaul {

// Option "gather": "chunk" (weights gathered for every chunk, as DPP is assumed to do: dpp.md 2.5) or "step". By
// default once a step where a stage's weights and gradients, unsharded (4 bytes a parameter), fill at most a tenth of
// the device. `stage_layers`: layers of each stage.
bool gathers_once(const StrategyRequest& request, const std::vector<std::int64_t>& stage_layers);

struct StageTraffic {
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// Collectives of one chunk on the stage of replica 0 where they take longest (ties: the earliest): an all-gather of
// each layer forward; an all-gather and a reduce-scatter of each backward. Stage 0 also gathers the embedding forward
// and reduces its gradient backward; the last stage gathers and reduces the head, both in the chunk's forward slot,
// where the schedule runs head and loss. Zero without ZeRO 3, on one rank a stage, gathered once, or with no cluster.
StageTraffic chunk_weight_traffic(const StrategyRequest& request, const std::vector<std::int64_t>& stage_layers);

}  // namespace longhaul
