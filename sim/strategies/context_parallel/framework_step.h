// Steps of gathering strategies with the copies of an eager framework (`copies: framework`; step/framework_gather.h).
#pragma once

#include <optional>
#include <string>

#include "sim/strategies/context_parallel/modelled.h"
#include "sim/strategies/step/framework_gather.h"

namespace longhaul {

enum class FrameworkStyle : std::uint8_t {
  kViews,    // Llama 3 by WLB-LLM's per-sequence code: a call's keys are a run of the gathered ones in token order
  kSlices,   // WLB-LLM's Per-Doc code: all-gather into a list, keys of a call copied together
  kPadded,   // Transformer Engine's all-gather by MagiAttention's benchmark: whole copies by gathers
  kOwnRows,  // FlashCP, assumed: as kSlices over what is sent, packed and unpacked by slices; own rows taken from here
};

// By rank. Documents need not follow each other: the rows of both halves of a rank make its two calls, front and back
// chunks where the plan lists them so; kPadded and kOwnRows: a document's first shard on a rank, then its others.
std::vector<FrameworkGatherShape> framework_shapes(const CpPlan& plan, FrameworkStyle style);

// `plans`: by micro-batch (plan_batch).
PlannedStep plan_framework_step(const StrategyRequest& request, std::vector<CpPlan> plans, FrameworkStyle style);

}  // namespace longhaul
