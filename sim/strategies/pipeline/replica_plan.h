// From ordered sequences of chunks to a replica's plan. Internal to the pipeline planners.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/strategies/pipeline/cost.h"
#include "sim/strategies/pipeline/plan.h"

namespace longhaul {

// The slots of one sequence of a stream: the slices of a long document or micro-batch, or one batched chunk. Pieces
// carry document, first and tokens; slice, slices and first_chunk are filled in by assemble_replica.
using SlotSequence = std::vector<PipelineChunk>;

// Numbers the chunks through the streams, finishes chunks and pieces, builds the order, and runs it alone with the
// modelled times (each stage's share of the slowest stage's by its layers; no P2P).
ReplicaPlan assemble_replica(std::vector<std::vector<SlotSequence>> streams, const PipelineLayout& layout,
                             const std::vector<std::int64_t>& stage_layers, const StageCost& cost);

}  // namespace longhaul
