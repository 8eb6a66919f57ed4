// The step of a strategy that takes documents one by one, each a micro-batch of its own on its group of ranks.
//
// A document on one rank is one attention call without communication; on a group of g it is cut zigzag, padded to 2g
// chunks, and goes round a ring of that group (sim/strategies/step/ring.h). Documents of a group follow each other,
// each with its own forward and backward pass; rounds (document_rounds.h) are parted by a barrier of all ranks, an
// all-reduce of one number that compute waits for. Sequences of a micro-batch follow each other, round by round.
//
// Chunks of the schedule: the d-th documents of all groups of a round share one, so that calls of all groups come in
// one common order on every rank. A rank without a d-th document leaves the chunk out; in the last one, where gradients
// are reduced, it has a row of padding. Under ZeRO 3 weights are gathered once a step, gradients reduced once. Ignored:
// the host, which waits at a barrier too.
#pragma once

#include "sim/strategies/context_parallel/document_rounds.h"
#include "sim/strategies/step/ring.h"
#include "sim/strategies/strategy.h"

namespace longhaul {

// Steps of all rings of one step together: three tensor kinds each (kMostRingRanks).
constexpr std::int64_t kMostRingSteps = kMostRingRanks;

// `rank_tokens`: of plan_document_rounds; 0: the even share of each sequence.
Planned plan_document_step(const StrategyRequest& request, std::int64_t rank_tokens, RingFlavor flavor);

}  // namespace longhaul
