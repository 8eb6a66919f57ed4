// The step of a strategy that gathers or exchanges K and V: one scheme, shapes made from the plan of each micro-batch.
#pragma once

#include <functional>

#include "sim/strategies/context_parallel/modelled.h"
#include "sim/strategies/context_parallel/shapes.h"

namespace longhaul {

struct GatherStep {
  std::vector<GatherConfig> gathers;
  std::vector<StageConfig> stages;
  StageRows rows = StageRows::kAll;
  std::function<std::vector<CpRankShape>(const CpPlan&)> shapes;
  CpTraffic traffic = CpTraffic::kFull;  // for the plan's report
};

// Llama 3's: K and V by a collective each, everything read from the gathered copy in token order (flashcp.md 2.1).
GatherStep full_gather_step();
// FlashCP's: K and V of what is sent in one buffer, whole documents read in place (flashcp.md 1.2).
GatherStep sharding_aware_step(CpTraffic traffic, bool overlap);

// `plans`: by micro-batch (plan_batch).
PlannedStep plan_gather_step(const StrategyRequest& request, std::vector<CpPlan> plans, const GatherStep& step);

}  // namespace longhaul
