// What one attention call of cuDNN computes, and which calls it can: no CUDA in here.
//
// A call is a list of sequences: q_count query rows against k_count key rows under one mask. Tensors are token rows
// (rows x heads x head_dim, bf16); the log-sum-exp is rows x q_heads, fp32, natural logarithm. Sequences of one size
// that follow each other without a gap run as a dense batch, anything else as a ragged (variable-length) one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/schedule/piece.h"

namespace longhaul {

enum class CudnnMask : std::uint8_t {
  kFull,
  kCausalTopLeft,     // query i sees keys 0 .. i
  kCausalBottomRight  // the last query sees the last key
};

struct CudnnSequence {
  std::int64_t q_row = 0, q_count = 0, k_row = 0, k_count = 0;
  bool operator==(const CudnnSequence&) const = default;
};

struct CudnnAttentionProblem {
  std::int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  CudnnMask mask = CudnnMask::kFull;
  std::vector<CudnnSequence> sequences;
  // Backward: dQ without atomics, so that it repeats bit for bit; takes more workspace.
  bool deterministic = false;
};

// Every reason why the call cannot be made, each naming what is supported; empty if it can. `backward`: key rows must
// not be shared by two sequences (their gradients would overwrite each other).
std::vector<std::string> refusals(const CudnnAttentionProblem& problem, bool backward);

// Whether the sequences are one dense batch.
bool is_dense(std::span<const CudnnSequence> sequences);

// The pieces as sequences of one call under one mask. Throws std::invalid_argument, naming the piece, for a rule, a
// stride or a causal offset that is not one of the masks, or one that differs from the other pieces' (a square causal
// piece is both; if all are, the mask is top-left).
CudnnAttentionProblem problem_of_pieces(std::span<const Piece> pieces, std::int64_t q_heads, std::int64_t kv_heads,
                                        std::int64_t head_dim);

}  // namespace longhaul
