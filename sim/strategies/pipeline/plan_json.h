// The JSON form of a pipeline plan, for `longhaul plan`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "sim/strategies/pipeline/plan.h"
#include "sim/workload/model.h"

namespace longhaul {

// {"dp", "pp", "sp", "stage_layers": [stage], "replicas": [{"tokens", "rows", "pairs", "modelled_ms", "streams":
//  [{"n_split", "slices": [count a sequence], "warm_up": [stage], "chunks": [{"chunk", "kind", "tokens", "rows",
//  "pairs", "modelled_ms", "edge_bytes", "pieces": [{"document", "first", "tokens", "slice", "slices",
//  "first_chunk"}]}]
//  }], "order": [stage]["F0", "F1", "B0", ...]}]}
// edge_bytes: what one GPU sends over one stage boundary, forward or backward: 2 bytes x hidden x rows / sp.
nlohmann::ordered_json pipeline_plan_json(const PipelinePlan& plan, const ModelShape& model);

}  // namespace longhaul
