// What each family folder adds to the registry.
#pragma once

#include <vector>

#include "sim/strategies/strategy.h"

namespace longhaul {

void add_sequence_parallel_strategies(std::vector<Strategy>& list);  // data-parallel, ulysses, basp
// allgather-cp, per-doc-cp, flashcp, te-allgather, wlb-cp
void add_context_parallel_strategies(std::vector<Strategy>& list);
void add_flashcp_strategy(std::vector<Strategy>& list);            // called by the one before
void add_ring_strategies(std::vector<Strategy>& list);             // zigzag-cp, ring-cp, te-p2p
void add_dispatch_strategies(std::vector<Strategy>& list);         // magi, skrull, hybrid-cp
void add_dcp_strategy(std::vector<Strategy>& list);                // dcp
void add_block_diffusion_strategies(std::vector<Strategy>& list);  // bd-offset-cp, csbp
void add_pipeline_strategies(std::vector<Strategy>& list);         // 1f1b, seq1f1b, dpp

}  // namespace longhaul
