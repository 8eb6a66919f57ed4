// A shard: part of one document on one rank, and the attention work that it carries under the causal mask.
//
// Units: tokens and (query, key) pairs. A padding run is a shard of no document: it takes rows, no token sees it and it
// has no pairs. Ignores heads and layers: pairs are per layer and head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/workload/batch.h"

namespace longhaul {

constexpr DocumentId kPaddingDocument = -1;

// Tokens [prefix, prefix + tokens) of a document of `document_tokens`, or `tokens` rows of padding.
struct Shard {
  DocumentId document = kPaddingDocument;
  std::int64_t prefix = 0;
  std::int64_t tokens = 0;
  std::int64_t document_tokens = 0;

  bool is_padding() const { return document == kPaddingDocument; }
  // Whether it holds the document's final token: no query comes after it, so nobody else needs it (flashcp.md 1.2).
  bool is_last() const { return !is_padding() && prefix + tokens == document_tokens; }
  bool operator==(const Shard&) const = default;
};

inline Shard padding_shard(std::int64_t rows) { return {kPaddingDocument, 0, rows, 0}; }

// Causal pairs of a whole document of `tokens`: w(x) = x(x+1)/2 (flashcp.md 0).
constexpr std::int64_t causal_pairs(std::int64_t tokens) { return tokens * (tokens + 1) / 2; }
// Causal pairs of a shard, own queries against prefix and itself: W(p,s) = s(2p+s+1)/2 (FlashCP eq. 3).
constexpr std::int64_t shard_pairs(std::int64_t prefix, std::int64_t tokens) {
  return tokens * (2 * prefix + tokens + 1) / 2;
}

// One document of a packed sequence, as the planners take it.
struct PlannedDocument {
  DocumentId document = 0;
  std::int64_t tokens = 0;  // at least 1
  bool operator==(const PlannedDocument&) const = default;
};

// The documents of one sequence of a batch, in packing order.
std::vector<PlannedDocument> sequence_documents(const Batch& batch, const Sequence& sequence);

// The runs of documents (and of padding at the end) under rows [first, first + rows) of the packed sequence.
std::vector<Shard> packed_rows(std::span<const PlannedDocument> documents, std::int64_t first, std::int64_t rows);

// Tokens of chunk `chunk` of `chunks` when a document of `tokens` is cut by WLB-LLM's rule: floor(tokens / chunks)
// each, the remainder one token each to consecutive chunks from `cursor` on, around the end (flashcp.md 2.2). The next
// document's cursor is (cursor + tokens) % chunks.
constexpr std::int64_t chunk_tokens(std::int64_t tokens, std::int64_t chunks, std::int64_t cursor, std::int64_t chunk) {
  return tokens / chunks + ((chunk - cursor + chunks) % chunks < tokens % chunks ? 1 : 0);
}

// Appends `shard`, joining it to the last one where both are padding or adjoining tokens of one document; drops empty
// ones.
void append_shard(std::vector<Shard>& shards, const Shard& shard);

}  // namespace longhaul
