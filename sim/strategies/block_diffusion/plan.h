// Block-diffusion plans: which noisy (corrupted) and which clean rows of one packed sequence each of P ranks holds.
//
// Training runs on two views of every document: the noisy copy x_t and the clean copy x_0, in blocks of b tokens that
// restart in each document; its last block may be short. Mask (csbp.md 2.1), query block i, key block j of the same
// document: noisy to noisy i = j; noisy to clean j < i; clean to clean j <= i; clean to noisy never. Units: tokens,
// pairs (per layer and query head), bytes. Sources: csbp.md 2-6 (arXiv 2609.19242 and its public code, schedules/block
// and attention/layout). Ignores time, sliding windows and block-parallel degrees other than P.
//
// Invariants: every token stands once in each view; clean rows are equal on every rank. Noisy rows are equal under
// token-offset CP, whose noisy K/V is gathered; under CSBP they never leave the rank and may differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/strategies/context_parallel/shard.h"

namespace longhaul {

struct BdRank {
  std::vector<Shard> noisy;  // rows in local order; a shard never crosses a block border
  std::vector<Shard> clean;
  bool operator==(const BdRank&) const = default;
};

struct BdPlan {
  std::int64_t block_tokens = 0;
  std::vector<BdRank> ranks;
  std::int64_t clean_rows_per_rank = 0;  // equal, padding included
  std::int64_t noisy_rows_per_rank = 0;  // equal, padding included; CSBP: the largest
  bool gathers_noisy = false;            // token-offset CP also gathers corrupted K/V
  bool operator==(const BdPlan&) const = default;
};

struct BdPairs {
  std::int64_t noisy_local = 0;                                             // noisy to noisy: L b
  std::int64_t noisy_clean = 0;                                             // noisy to clean: L (L-b)/2
  std::int64_t clean = 0;                                                   // clean to clean: L (L+b)/2
  std::int64_t total() const { return noisy_local + noisy_clean + clean; }  // L (L+b)
  BdPairs& operator+=(const BdPairs& other) {
    noisy_local += other.noisy_local;
    noisy_clean += other.noisy_clean;
    clean += other.clean;
    return *this;
  }
  bool operator==(const BdPairs&) const = default;
};

// Pairs of one whole document (csbp.md 2.2; formulas beside the fields for b | L, exact for a short last block too).
BdPairs block_diffusion_pairs(std::int64_t tokens, std::int64_t block_tokens);
// Pairs of a noisy shard within one block, and of any clean shard.
BdPairs noisy_shard_pairs(const Shard& shard, std::int64_t block_tokens);
BdPairs clean_shard_pairs(const Shard& shard, std::int64_t block_tokens);

struct BdRankLoad {
  std::int64_t noisy_tokens = 0;
  std::int64_t clean_tokens = 0;
  std::int64_t padding = 0;  // rows of both views
  BdPairs pairs;
  bool operator==(const BdRankLoad&) const = default;
};
struct BdLoads {
  std::vector<BdRankLoad> ranks;
  BdPairs pairs;
  std::int64_t pairs_max = 0;
  double imbalance = 1;  // max / mean pairs
};
BdLoads bd_loads(const BdPlan& plan);

// Blocks of one document of `blocks` blocks for each of P ranks, in csbp.md 3.1's order: pairs (i, N-1-i), rank p takes
// pairs [p (N/2) / P, (p+1) (N/2) / P), the middle block of an odd N goes to the rank with the least prefix cost
// (lowest rank of equals). With N/2 < P: greedy, longest prefix first, single blocks to the rank of least cost.
// A rank may get none only when blocks < ranks.
std::vector<std::vector<std::int64_t>> dual_end_blocks(std::int64_t blocks, std::int64_t ranks);

// Each planner gives the reason, a sentence fragment, where the scheme cannot be applied.

// CSBP: noisy blocks whole on ranks, clean rows in 2P zigzag chunks.
//  * One document: the paper's ownership (`dual_end_blocks`); the paper rejects fewer than P blocks, we leave ranks
//    without noisy rows.
//  * Otherwise documents whose block count 2P divides are paired one by one, which is balanced; the blocks of all other
//    documents are assigned jointly, most pairs first, each to the rank with the fewest pairs so far (then fewest rows,
//    then the lowest rank). This is the paper's rule for N/2 < P over several documents; a rank may hold no block.
//  * Clean rows: chunks i and 2P-1-i of each document, the remainder of d mod 2P one token each to consecutive chunks
//    with a cursor carried over (as Per-Doc CP), the sequence padded at its end to a multiple of 2P. Where 2P divides
//    every document these are the paper's 2P zigzag chunks.
tl::expected<BdPlan, std::string> plan_csbp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                            std::int64_t block_tokens);
// Token-offset CP: within every block rank r owns offsets [r b/2P, (r+1) b/2P) and the mirrored tail; [r b/P, (r+1)b/P)
// if b/P is odd. P must divide b. A short last block is padded to the next multiple of 2P (P if b/P is odd) and split
// by the same rule. Clean rows: contiguous shards of the packed sequence, padded at its end to a multiple of P.
tl::expected<BdPlan, std::string> plan_bd_offset_cp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                    std::int64_t block_tokens);

// Bytes that one rank sends in one layer of one step (csbp.md 5): f G (F+1) for CSBP, 2 f G (F+1) for token-offset CP,
// f = (P-1)/P, G = K and V of the clean sequence, F = 2 with full recompute, else 1. From the plan's padded rows.
std::int64_t bd_sent_bytes(const BdPlan& plan, std::int64_t kv_width, std::int64_t bytes_per_element, bool recompute);

}  // namespace longhaul
