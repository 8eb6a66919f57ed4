// The pieces of an attention op as one variable-length call of a library takes them.
//
// A library sees sequences of rows, not shards: pieces whose rows adjoin are one sequence where its mask says the same.
// A zigzag ring's own block is three pieces a document (front, back on front, back) and one causal sequence of a call;
// both halves of the queries on one run of keys are one full sequence. Neighbours of other masks (block rules) on the
// same keys are one piece: a backward pass goes through their key tiles once. Pairs add up; nothing else changes.
#pragma once

#include <vector>

#include "sim/cost/attention_work.h"
#include "sim/schedule/piece.h"

namespace longhaul {

// In the order of the list, adjoining neighbours joined.
std::vector<AttentionPieceSize> launch_pieces(const PieceList& list);

}  // namespace longhaul
