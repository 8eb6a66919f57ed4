// Documents one by one on groups of ranks, as Megatron's hybrid context parallelism deals them.
//
// Units: tokens. From the public code, facts only (github NVIDIA/Megatron-LM @00caa53, megatron/core/pipeline_parallel/
// hybrid_cp_schedule.py, BalancedCPScheduler; flashcp.md 2.8): a document of d tokens wants g = 2^ceil(log2(d /
// rank_tokens)) ranks, at most all, and is d^2 / g of work on each of them. Documents come longest first, in buckets of
// about equal work, as many as there are sizes of groups; a bucket ends before a document that would take it past 1.1
// times its share, or where the documents left are one for each bucket left. In a round every rank belongs to one
// group. The next document is the head of the first bucket whose head has a place: a new group where ranks are free,
// else the group of its size with least work. The round is full when no head has a place, or, once a document was
// placed that wants fewer ranks than the round's first, when groups differ by at most 5 % of the most; then the last
// document of the group with most work is put off as long as that brings groups closer. While ranks are free the
// first of the smallest groups is doubled. What is left makes the next round, buckets first, then what was put off.
// Ours: groups stand longest first, so that one of g ranks begins at a multiple of g whatever was put off; the code
// takes the first free ranks, which is the same where sizes fall. Where ranks are no power of two, some may stay free.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/strategies/context_parallel/shard.h"

namespace longhaul {

// Ranks first .. first + ranks - 1, and what they compute together, one document after the other.
struct DocumentGroup {
  std::int64_t first = 0;
  std::int64_t ranks = 1;
  std::vector<PlannedDocument> documents;
  bool operator==(const DocumentGroup&) const = default;
};

using DocumentRound = std::vector<DocumentGroup>;  // by first rank; no rank is in two groups

// The error is the reason why the documents cannot be dealt: none of them, or no rank.
tl::expected<std::vector<DocumentRound>, std::string> plan_document_rounds(std::span<const PlannedDocument> documents,
                                                                           std::int64_t ranks,
                                                                           std::int64_t rank_tokens);

}  // namespace longhaul
