// A pipeline's plan given in a study: dpp's option `assignment`, as a measured run keeps it.
//
// An array of replicas (dp), of each an array of streams, of each an array of sequences (the slots of one long
// document, or one batched chunk), of each an array of chunks, of each an array of pieces in row order:
// {"document": D, "first_token": F, "tokens": T}. Slices of a document stand in consecutive chunks of one sequence.
#pragma once

#include <string>

#include "sim/core/json.h"
#include "sim/strategies/pipeline/cost.h"
#include "sim/strategies/pipeline/plan.h"

namespace longhaul {

// Shape and types alone; every error at its own place.
void check_pipeline_assignment(const Json& assignment, const std::string& file, const std::string& path,
                               Errors& errors);

// The plan, or what keeps it from being one of this batch and layout: the first fault by replica, stream and chunk.
Applicable<PipelinePlan> assigned_pipeline(const Json& assignment, const Batch& batch, std::int64_t layers,
                                           const PipelineLayout& layout, const DppCostModel& cost);

Json pipeline_assignment_of(const PipelinePlan& plan);

}  // namespace longhaul
