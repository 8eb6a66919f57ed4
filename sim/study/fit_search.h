// The smallest change that makes a step fit into memory, found by simulating the changed step.
//
// Tried in order, each only where it changes something: micro-batch 1, full recompute, ZeRO 3, both, then the same with
// each larger degree that shares a sequence (cp, sp, or pp for pipelines), nearest first. The first that fits is taken.
#pragma once

#include "sim/study/entry_run.h"

namespace longhaul {

DoesNotFit search_fit(const CaseSetup& setup, const StrategyEntry& entry, const Degrees& degrees,
                      const StepSummary& summary);

}  // namespace longhaul
