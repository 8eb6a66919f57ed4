// Plans that deal whole chunks or whole documents to ranks: MagiAttention, Skrull, hybrid CP.
//
// Units: tokens, pairs. Every token stands on exactly one rank; a rank without any holds a row of padding.
// MagiAttention gives every rank as many rows; Skrull and hybrid CP do not, so what is outside attention is as uneven
// as their tokens (flashcp.md 2.7-2.9). Ties go to the lower rank and the earlier document, of MagiAttention's chunks
// to the later one. Ignored: ByteScale's pipelines; Skrull's choice of micro-batches is in skrull.h.
#pragma once

#include "sim/strategies/context_parallel/plan.h"

namespace longhaul {

// MagiAttention (flashcp.md 2.7): the packed sequence in chunks, as many for each rank, largest mask area first to the
// rank with least area among those with a free slot. Chunks hold `chunk_tokens`, fewer where a rank would get none;
// the sequence is padded at its end to whole chunks on all ranks.
tl::expected<CpPlan, std::string> plan_magi(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                            std::int64_t chunk_tokens);

// Skrull's DACP (flashcp.md 2.9): documents shortest first; each whole on the rank with fewest pairs if it has room in
// its bucket of `bucket_tokens`, else on the rank with most room, else cut over all ranks (2N zigzag chunks). If that
// does not fit either, the longest whole document of the fullest rank is cut instead, until it does.
// The error: the documents do not fit the buckets.
tl::expected<CpPlan, std::string> plan_skrull(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                              std::int64_t bucket_tokens);

// ByteScale's HDP as in Megatron's BalancedCPScheduler (flashcp.md 2.8): a document of d tokens takes a group of g =
// 2^ceil(log2(d / rank_tokens)) ranks, all of them if g would exceed N; longest first, each to the group of its size
// with least work (d^2 / g a rank). Groups of g are ranks k g .. (k + 1) g - 1. A document is cut zigzag in its group.
tl::expected<CpPlan, std::string> plan_hybrid_cp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                 std::int64_t rank_tokens);

}  // namespace longhaul
