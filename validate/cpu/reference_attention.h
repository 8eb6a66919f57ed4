// Attention of one whole document for the reference: dense tiles of queries x keys under the mask of the objective.
//
// The mask is evaluated pair by pair from its definition (causal; csbp.md 2.1), shares no code with pieces, and is kept
// as additive tiles (0 or -inf). Scale 1 / sqrt(head_dim), natural-log LSE.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/workload/batch.h"
#include "validate/cpu/storage.h"

namespace longhaul {

// Whether row `query` of a document sees row `key`; rows as in reference.h.
bool mask_allows(std::int64_t tokens, const Objective& objective, std::int64_t query, std::int64_t key);

// Rows of the whole batch; a document uses its own.
struct AttentionState {
  const Matrix& q;
  const Matrix& k;
  const Matrix& v;
  const Matrix& o;
  const Matrix& lse;  // rows x q_heads
  const Matrix& d_o;
};

class DocumentAttention {
 public:
  DocumentAttention(std::int64_t tokens, const Objective& objective);

  // Sets the document's rows (from `first_row`) of o and lse.
  void forward(const ModelShape& model, std::int64_t first_row, const Matrix& q, const Matrix& k, const Matrix& v,
               Matrix& o, Matrix& lse, int threads = 0) const;
  // Adds to the document's rows of the gradients.
  void backward(const ModelShape& model, std::int64_t first_row, const AttentionState& state, Matrix& d_q, Matrix& d_k,
                Matrix& d_v, int threads = 0) const;

 private:
  void forward_head(const ModelShape& model, std::int64_t first_row, const Matrix& q, const Matrix& k, const Matrix& v,
                    Matrix& o, Matrix& lse, std::int64_t head) const;
  void backward_head(const ModelShape& model, std::int64_t first_row, const AttentionState& state, Matrix& d_q,
                     Matrix& d_k, Matrix& d_v, std::int64_t head) const;

  struct Tile {
    std::int64_t q_begin = 0, q_count = 0, k_begin = 0, k_count = 0;
    Matrix mask;  // empty: every pair is allowed
  };
  // Tiles of one range of queries, by key.
  std::vector<std::vector<Tile>> bands_;
};

}  // namespace longhaul
