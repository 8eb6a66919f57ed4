// A case small enough to be executed in double precision on the CPU (cli.md, `verify`).
//
// Kept: head counts, tied embeddings, bias and QK norm, GPUs, topology, layout, micro-batch, ZeRO, recompute, policy
// options and the order of documents. Reduced: layers, head_dim, hidden, FFN, vocabulary; the batch of the first step.
#pragma once

#include <string>
#include <vector>

#include "sim/core/rng.h"
#include "sim/scenario/study.h"

namespace longhaul {

inline constexpr std::int64_t kVerifyTokens = 4096;

// max(2, stages) layers, head_dim 8, hidden = query heads x 8, FFN = 4 x hidden, vocabulary 97.
ModelShape reduce_model(const ModelShape& model, int stages);

// Lengths by sequence with at most `tokens` in all, as they are if they are that few. Else every sequence keeps its
// share of the tokens (at least one) and every document its share of the sequence, rounded down but at least one token;
// the last ones are dropped where those single tokens do not fit.
std::vector<std::vector<std::int64_t>> reduce_documents(const Batch& batch, std::int64_t tokens = kVerifyTokens);

struct ReducedCase {
  StudyCase study_case;              // explicit documents, one step, the whole training step
  std::vector<std::string> changes;  // one line each: what was reduced, from and to
};

ReducedCase reduce_case(const StudyCase& study_case, int stages);

inline constexpr std::int64_t kRandomTokens = 2048;
inline constexpr std::int64_t kRandomDocuments = 64;

// Lengths by sequence for one batch of the reduced case in place of its own: 1 to kRandomDocuments documents a
// sequence, lengths over all powers of two, at least `least` tokens a sequence where that many documents hold them, and
// at most kRandomTokens in all (or `least` a sequence, if that is more).
std::vector<std::vector<std::int64_t>> random_documents(std::int64_t sequences, std::int64_t least, Rng& rng);

}  // namespace longhaul
