// DCP (SOSP'25; flashcp.md 2.6): documents in blocks of tokens, and computation blocks (queries of one, keys of
// another) that any rank may take. A hypergraph says what moves; its partition says where everything stands.
//
// Vertices: a token block weighs its tokens, a computation block its (query, key) pairs. Nets: each block's queries
// (with output and log-sum-exp, and their gradients) and each block's keys and values, over the token block and the
// computation blocks that use it; cost = bytes of both passes, so the cut is what the step moves. Two levels as in the
// paper: over nodes with slack `imbalance_inter`, then inside each node with `imbalance_intra`. Every token stands on
// exactly one rank; tokens and pairs of ranks are equal within the slacks as far as single blocks allow.
//
// Units: tokens, pairs, bytes. Ignored: blocks by head group (the paper cuts heads too; here a block has all heads),
// and the paper's search over block sizes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/strategies/context_parallel/hypergraph.h"
#include "sim/strategies/context_parallel/plan.h"

namespace longhaul {

struct DcpOptions {
  // 0: 1024 (the paper tries 512 to 4096), smaller where ranks would get under 8 blocks. Either is made larger, by
  // doubling, where a sequence would have more than 2^15 computation blocks beyond one for each document.
  std::int64_t block_tokens = 0;
  double imbalance_inter = 0.4;  // the paper's epsilons
  double imbalance_intra = 0.1;
  std::int64_t ranks_per_node = 0;  // 0, or no divisor of the ranks below them: one level
  // Bytes that a token's queries or keys cost when one more rank needs them.
  std::int64_t query_bytes = 1;
  std::int64_t key_bytes = 1;
};

struct DcpBlock {
  DocumentId document = 0;
  std::int64_t first = 0;  // token of the document
  std::int64_t tokens = 0;
  std::int32_t owner = 0;  // rank
  bool operator==(const DcpBlock&) const = default;
};
// Queries of one block against keys of another (or itself) of the same document, key <= query.
struct DcpWork {
  std::int32_t query = 0, key = 0;  // blocks
  std::int32_t worker = 0;          // rank
  bool operator==(const DcpWork&) const = default;
};

struct DcpPlan {
  CpPlan rows;                    // what each rank holds, in packing order; a rank without tokens has a row of padding
  std::vector<DcpBlock> blocks;   // in packing order
  std::vector<DcpWork> work;      // by query block, then key block
  std::int64_t cut_bytes = 0;     // of one layer
  std::int64_t block_tokens = 0;  // as used: the largest of its sequences
};

tl::expected<DcpPlan, std::string> plan_dcp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                            const DcpOptions& options);

// Pairs of each rank's computation blocks.
std::vector<std::int64_t> dcp_pairs(const DcpPlan& plan);
// Sequences of one micro-batch, one after the other.
DcpPlan concatenate(std::span<const DcpPlan> plans);
nlohmann::ordered_json dcp_plan_json(const DcpPlan& plan);

}  // namespace longhaul
