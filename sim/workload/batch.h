// Documents of one training step, and the attention mask that they imply.
//
// A batch is what every strategy of a case trains on. The mask never crosses a document. Token ids and labels are
// functions of (document, position), so any rank can make its own rows without communication, as a data loader would.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/workload/model.h"

namespace longhaul {

enum class ObjectiveKind : std::uint8_t { kCausalLm, kBlockDiffusion };

struct Objective {
  ObjectiveKind kind = ObjectiveKind::kCausalLm;
  std::int64_t block_tokens = 0;  // block diffusion only: b
};

// Index into Batch::documents.
using DocumentId = std::int32_t;

// One packed sequence: whole documents in order (a document cut at the context end is a shorter document).
struct Sequence {
  std::vector<DocumentId> documents;
  std::int64_t tokens = 0;  // sum of the documents' tokens, without padding
};

struct Batch {
  Objective objective;
  std::vector<std::int64_t> documents;  // tokens of each document, at least 1
  std::vector<Sequence> sequences;      // each document stands in exactly one sequence
  std::int64_t context_tokens = 0;      // the packed length; sequences may be shorter (explicit documents)

  std::int64_t tokens() const;  // real tokens of the step (clean tokens for block diffusion)
};

// Unmasked (query, key) pairs of one document of `tokens` under `objective`, per layer and head.
//   causal LM: x(x+1)/2                                            (flashcp.md 0)
//   block diffusion: noisy local + noisy to clean + clean          (csbp.md 2.2; a last block may be short)
std::int64_t document_pairs(std::int64_t tokens, const Objective& objective);
std::int64_t batch_pairs(const Batch& batch);

// Rows that pass through the layers: tokens, twice that for block diffusion (noisy and clean).
std::int64_t batch_rows(const Batch& batch);

// Tokens that the loss counts. Causal LM: every token but the last of its document (its label is the next token).
// Block diffusion: the corrupted tokens, `is_corrupted`. May be 0 for a batch of very few tokens.
std::int64_t counted_tokens(const Batch& batch);

// The token id at `position` of a document: a fixed hash, so that no file of tokens is needed. Never the mask id.
std::int64_t token_id(DocumentId document, std::int64_t position, std::int64_t vocab);
// Block diffusion: whether the noisy copy of this token is replaced by the mask token (id vocab - 1); about half are.
bool is_corrupted(DocumentId document, std::int64_t position);

}  // namespace longhaul
