// Random documents of one packed sequence: lengths log-uniform from 1, at most `most_tokens` in all.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "sim/strategies/context_parallel/shard.h"

namespace longhaul {

inline std::vector<PlannedDocument> some_documents(std::int64_t most_tokens) {
  std::vector<PlannedDocument> documents;
  std::int64_t left = *rc::gen::inRange<std::int64_t>(1, most_tokens + 1);
  while (left > 0 && documents.size() < 200) {
    const int bits = *rc::gen::inRange(0, 11);
    const std::int64_t tokens = std::min(left, *rc::gen::inRange<std::int64_t>(1 << bits, (2 << bits)));
    documents.push_back({static_cast<DocumentId>(documents.size()), tokens});
    left -= tokens;
  }
  return documents;
}

// How often each token of each document stands in the shards; asserts that shards lie within their document.
inline void count_tokens(std::vector<std::vector<int>>& seen, const std::vector<Shard>& shards) {
  for (const Shard& shard : shards) {
    RC_ASSERT(shard.tokens > 0);
    if (shard.is_padding()) continue;
    auto& document = seen[static_cast<std::size_t>(shard.document)];
    RC_ASSERT(shard.document_tokens == static_cast<std::int64_t>(document.size()));
    RC_ASSERT(shard.prefix >= 0);
    RC_ASSERT(shard.prefix + shard.tokens <= shard.document_tokens);
    for (std::int64_t i = 0; i < shard.tokens; ++i) ++document[static_cast<std::size_t>(shard.prefix + i)];
  }
}

inline std::vector<std::vector<int>> no_tokens(const std::vector<PlannedDocument>& documents) {
  std::vector<std::vector<int>> seen;
  for (const PlannedDocument& document : documents) seen.emplace_back(static_cast<std::size_t>(document.tokens), 0);
  return seen;
}

inline bool all_once(const std::vector<std::vector<int>>& seen) {
  return std::all_of(seen.begin(), seen.end(), [](const std::vector<int>& document) {
    return std::all_of(document.begin(), document.end(), [](int count) { return count == 1; });
  });
}

}  // namespace longhaul
