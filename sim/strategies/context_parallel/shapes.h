// From a context-parallel plan to the shapes of its ranks: row maps, gathers, copies into token order, pieces.
#pragma once

#include "sim/strategies/context_parallel/plan.h"
#include "sim/strategies/step/gather.h"

namespace longhaul {

// Rows of one rank as the plan lists them.
RowMapPtr rank_row_map(const std::vector<Shard>& shards);

// One attention launch: its query rows (nullptr: all) and its pieces, whose query rows count within them.
struct CpStageShape {
  RowListPtr rows;
  PieceListPtr pieces;
};

struct CpRankShape {
  RowMapPtr rows;
  std::vector<GatherShape> gathers;
  std::vector<CpStageShape> stages;
};

// Static schemes: every rank gathers every row and copies all documents into token order; each shard attends to its
// document's prefix and itself (operand 0: the ordered rows). One stage.
std::vector<CpRankShape> full_gather_shapes(const CpPlan& plan);

// The same with two stages (own rows): front chunks, then back chunks of documents cut zigzag (Transformer Engine).
std::vector<CpRankShape> chunk_stage_shapes(const CpPlan& plan);

// FlashCP: shards that are not the last of their document are gathered in one buffer, padded to the largest rank's.
// Own rows are an operand for shards that start a document; the ordered rows, the next operand, hold the split
// documents that the rank needs: all of each Per-Doc document, and of other documents the tokens up to its furthest
// shard. `overlap`: two stages (own rows): what needs no gathered row, then the rest; each has its one operand.
std::vector<CpRankShape> sharding_aware_shapes(const CpPlan& plan, bool overlap);

// The same with an exchange of exactly the rows that each rank needs (flashcp.md 1.2 and 6.7a).
std::vector<CpRankShape> exact_shapes(const CpPlan& plan, bool overlap);

// Which of the rows that a rank lacks a stage casts, in order of documents and tokens.
enum class CastDeal : std::uint8_t {
  kInOrder,   // a run of rows a stage
  kShuffled,  // runs of 512 rows, dealt as MagiAttention's benchmark shuffles them (seed 42, the same on every rank)
};

// MagiAttention: own queries against own rows (stage 0, all rows), then against rows cast from other ranks in
// `stages` parts of about equal rows, each a gather of its own (stage rows: some). Rows stay in order of arrival.
std::vector<CpRankShape> cast_shapes(const CpPlan& plan, int stages, CastDeal deal);

}  // namespace longhaul
