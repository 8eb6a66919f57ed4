// Context-parallel plans: which rows of one packed sequence each of N ranks holds.
//
// A plan is a pure function of the documents and N. `ranks[j]` lists the rows of rank j in their local order; every
// token stands on exactly one rank, and every rank has the same number of rows (tokens plus padding). Units: tokens,
// pairs (per layer and query head), bytes, FLOPs. Sources: flashcp.md 1.1-1.2 (FlashCP, arXiv 2606.08476, eq. 1-5),
// 2.0-2.3 (Llama 3 all-gather CP, WLB-LLM Per-Doc CP, zigzag ring). Ignores time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/strategies/context_parallel/shard.h"

namespace longhaul {

struct CpPlan {
  std::vector<std::vector<Shard>> ranks;    // rows in local order, padding runs included
  std::int64_t padded_tokens_per_rank = 0;  // rows of every rank
  // FlashCP: documents cut into 2N zigzag chunks, longest first. Static schemes leave it empty.
  std::vector<DocumentId> per_doc_documents;

  std::int64_t rank_count() const { return static_cast<std::int64_t>(ranks.size()); }
  bool operator==(const CpPlan&) const = default;
};

// What the plan gives one rank.
struct CpRankLoad {
  std::int64_t tokens = 0;   // without padding
  std::int64_t padding = 0;  // rows
  std::int64_t shards = 0;   // without padding runs
  std::int64_t pairs = 0;    // sum of W(p, s)
  std::int64_t nonlast = 0;  // tokens in shards that are not the last of their document: what FlashCP sends
  // Tokens of other ranks that own queries see: per document, the end of the furthest shard less the tokens owned below
  // it (flashcp.md 1.2, "who needs what").
  std::int64_t need = 0;
  bool operator==(const CpRankLoad&) const = default;
};

struct CpLoads {
  std::vector<CpRankLoad> ranks;
  std::int64_t tokens = 0;
  std::int64_t padding = 0;
  std::int64_t shards = 0;
  std::int64_t pairs = 0;
  std::int64_t pairs_max = 0;
  std::int64_t nonlast_max = 0;  // B_max of eq. 5
  std::int64_t need_max = 0;
  double imbalance = 1;  // R = max pairs / mean pairs; 1 when there are no pairs
};

CpRankLoad cp_rank_load(std::span<const Shard> shards);
CpLoads cp_loads(const CpPlan& plan);

// Shards of a rank that somebody else can need: all but padding and last shards, in local order (flashcp.md 1.2).
std::vector<Shard> sendable_shards(std::span<const Shard> shards);

// Plans of several sequences of one micro-batch, one after the other on each rank. All must have one rank count.
CpPlan concatenate(std::span<const CpPlan> plans);

// Each planner gives the reason, a sentence fragment, where the scheme cannot be applied: fewer than one rank, or no
// documents. Documents keep the order given.

// Plain contiguous shards of the packed sequence, padded at its end to a multiple of N (flashcp.md 2.3 "plain").
tl::expected<CpPlan, std::string> plan_contiguous_cp(std::span<const PlannedDocument> documents, std::int64_t ranks);
// Llama 3: the packed sequence, padded at its end to a multiple of 2N, in 2N chunks; rank i: chunk i, then 2N-1-i.
tl::expected<CpPlan, std::string> plan_allgather_cp(std::span<const PlannedDocument> documents, std::int64_t ranks);
// Every document padded at its end to a multiple of 2N and cut in 2N chunks; rank i holds, document after document,
// chunk i and chunk 2N-1-i. All ranks have equal chunks, padding included, so ring steps are equal.
tl::expected<CpPlan, std::string> plan_zigzag_cp(std::span<const PlannedDocument> documents, std::int64_t ranks);
// WLB-LLM's code: chunks of floor(d/2N), the d mod 2N remaining tokens one each to consecutive chunks, the chunk cursor
// carried over from document to document; the sequence padded at its end to a multiple of 2N by the same rule. Rank i
// holds its front chunks (i) of all documents, then its back chunks (2N-1-i). Equal rows on every rank.
tl::expected<CpPlan, std::string> plan_per_doc_cp(std::span<const PlannedDocument> documents, std::int64_t ranks);

// Elements moved on the critical path, forward and backward: 4 (sum d / N) H D (N-1) (eq. 4) with `rows` = sum d / N,
// and 4 B_max H D (N-1) (eq. 5) with `rows` = B_max. H is the paper's head count; with GQA, the K/V heads.
std::int64_t gather_scatter_elements(std::int64_t rows, std::int64_t ranks, std::int64_t kv_heads,
                                     std::int64_t head_dim);
// Bytes of K and V that one rank receives in one layer's all-gather (or sends and receives in its reduce-scatter) of
// `rows` a rank: 2 (N-1) rows Hkv D b.
std::int64_t kv_gather_bytes(std::int64_t rows, std::int64_t ranks, std::int64_t kv_width,
                             std::int64_t bytes_per_element);
// Forward attention FLOPs of `pairs` in all query heads: 4 Hq D pairs.
double attention_forward_flops(std::int64_t pairs, std::int64_t q_width);

}  // namespace longhaul
