#include "sim/strategies/context_parallel/shard.h"

#include <algorithm>

namespace longhaul {

std::vector<PlannedDocument> sequence_documents(const Batch& batch, const Sequence& sequence) {
  std::vector<PlannedDocument> documents;
  documents.reserve(sequence.documents.size());
  for (const DocumentId id : sequence.documents) {
    documents.push_back({id, batch.documents[static_cast<std::size_t>(id)]});
  }
  return documents;
}

std::vector<Shard> packed_rows(std::span<const PlannedDocument> documents, std::int64_t first, std::int64_t rows) {
  std::vector<Shard> runs;
  const std::int64_t end = first + rows;
  std::int64_t start = 0;
  for (const PlannedDocument& document : documents) {
    const std::int64_t low = std::max(first, start);
    const std::int64_t high = std::min(end, start + document.tokens);
    if (low < high) append_shard(runs, {document.document, low - start, high - low, document.tokens});
    start += document.tokens;
    if (start >= end) break;
  }
  append_shard(runs, padding_shard(end - std::max(first, std::min(start, end))));
  return runs;
}

void append_shard(std::vector<Shard>& shards, const Shard& shard) {
  if (shard.tokens == 0) return;
  if (!shards.empty() && shards.back().document == shard.document) {
    Shard& last = shards.back();
    if (shard.is_padding() || last.prefix + last.tokens == shard.prefix) {
      last.tokens += shard.tokens;
      return;
    }
  }
  shards.push_back(shard);
}

}  // namespace longhaul
