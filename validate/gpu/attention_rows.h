// The attention calls that attention-bench times, as rows of the `cost` command (cli.md, "Row formats"). Needs no CUDA.
//
// pieces: "QxK;QxK;...", one call; mask: causal (bottom-right), full, block-diffusion:B, block-diffusion-token:B, where
// LxL is a clean sequence of L tokens and its corrupted copy. Sequences stand one after the other in the token rows; of
// block diffusion, each corrupted copy before its clean one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/schedule/piece.h"

namespace longhaul {

struct AttentionRow {
  std::string name;
  std::int64_t q_heads = 32, kv_heads = 8, head_dim = 128;
  std::string mask = "causal";
  std::string pieces;
};

struct AttentionCall {
  std::vector<Piece> pieces;
  std::int64_t q_rows = 0, k_rows = 0;
  std::int64_t pairs = 0;  // unmasked, one head
  bool block_diffusion = false;
};

// Errors: every part that is not QxK with 1 <= Q, K < 2^30, a mask that is not one of the above, a causal piece with
// more queries than keys, block diffusion of a piece that is not square.
Expected<AttentionCall> attention_call(const AttentionRow& row);

// Multiply-adds of the two products count 2 each: 4 x pairs x head_dim x q_heads forward, 2.5 times that backward.
double attention_flops(const AttentionRow& row, const AttentionCall& call, bool backward);

// Plain causal and full sequences, packed documents, shards and slices, block diffusion. `quick`: one of each.
std::vector<AttentionRow> bench_rows(bool quick);

}  // namespace longhaul
