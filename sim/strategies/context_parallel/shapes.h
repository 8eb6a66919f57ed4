// From a context-parallel plan to the shapes of its ranks: row maps, gathers, copies into token order, pieces.
#pragma once

#include "sim/strategies/context_parallel/plan.h"
#include "sim/strategies/step/gather.h"

namespace longhaul {

// Rows of one rank as the plan lists them.
RowMapPtr rank_row_map(const std::vector<Shard>& shards);

struct CpRankShape {
  RowMapPtr rows;
  GatherShape gather;
  PieceListPtr pieces;
};

// Static schemes: every rank gathers every row and copies all documents into token order; each shard attends to its
// document's prefix and itself (operand 0: the ordered rows).
std::vector<CpRankShape> full_gather_shapes(const CpPlan& plan);

// FlashCP: shards that are not the last of their document are gathered in one buffer, padded to the largest rank's.
// Operand 0: own rows, for shards that start a document; operand 1: the ordered rows, which hold the split documents
// that the rank needs: all of each Per-Doc document, and of other documents the tokens up to its furthest shard.
std::vector<CpRankShape> sharding_aware_shapes(const CpPlan& plan);

}  // namespace longhaul
