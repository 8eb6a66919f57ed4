// The schemes whose cut does not look at the work: contiguous, Llama 3 all-gather, zigzag and Per-Doc.
#include <numeric>

#include "sim/core/integers.h"
#include "sim/strategies/context_parallel/plan.h"
#include "sim/strategies/context_parallel/refusal.h"

namespace longhaul {
namespace {

std::int64_t total_tokens(std::span<const PlannedDocument> documents) {
  return std::accumulate(documents.begin(), documents.end(), std::int64_t{0},
                         [](std::int64_t sum, const PlannedDocument& document) { return sum + document.tokens; });
}

void append_all(std::vector<Shard>& shards, const std::vector<Shard>& more) {
  for (const Shard& shard : more) append_shard(shards, shard);
}

CpPlan empty_plan(std::int64_t ranks, std::int64_t rows) {
  CpPlan plan;
  plan.ranks.resize(static_cast<std::size_t>(ranks));
  plan.padded_tokens_per_rank = rows;
  return plan;
}

}  // namespace

tl::expected<CpPlan, std::string> plan_contiguous_cp(std::span<const PlannedDocument> documents, std::int64_t ranks) {
  if (auto reason = cp_refusal(documents, ranks)) return tl::unexpected(*reason);
  const std::int64_t rows = ceil_div(total_tokens(documents), ranks);
  CpPlan plan = empty_plan(ranks, rows);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    plan.ranks[static_cast<std::size_t>(rank)] = packed_rows(documents, rank * rows, rows);
  }
  return plan;
}

tl::expected<CpPlan, std::string> plan_allgather_cp(std::span<const PlannedDocument> documents, std::int64_t ranks) {
  if (auto reason = cp_refusal(documents, ranks)) return tl::unexpected(*reason);
  const std::int64_t chunk = ceil_div(total_tokens(documents), 2 * ranks);
  CpPlan plan = empty_plan(ranks, 2 * chunk);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<Shard>& shards = plan.ranks[static_cast<std::size_t>(rank)];
    append_all(shards, packed_rows(documents, rank * chunk, chunk));
    append_all(shards, packed_rows(documents, (2 * ranks - 1 - rank) * chunk, chunk));
  }
  return plan;
}

tl::expected<CpPlan, std::string> plan_zigzag_cp(std::span<const PlannedDocument> documents, std::int64_t ranks) {
  if (auto reason = cp_refusal(documents, ranks)) return tl::unexpected(*reason);
  CpPlan plan = empty_plan(ranks, 0);
  for (const PlannedDocument& document : documents) {
    const std::int64_t chunk = ceil_div(document.tokens, 2 * ranks);
    plan.padded_tokens_per_rank += 2 * chunk;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::vector<Shard>& shards = plan.ranks[static_cast<std::size_t>(rank)];
      append_all(shards, packed_rows({&document, 1}, rank * chunk, chunk));
      append_all(shards, packed_rows({&document, 1}, (2 * ranks - 1 - rank) * chunk, chunk));
    }
  }
  return plan;
}

tl::expected<CpPlan, std::string> plan_per_doc_cp(std::span<const PlannedDocument> documents, std::int64_t ranks) {
  if (auto reason = cp_refusal(documents, ranks)) return tl::unexpected(*reason);
  const std::int64_t chunks = 2 * ranks;
  const std::int64_t chunk_rows = ceil_div(total_tokens(documents), chunks);
  CpPlan plan = empty_plan(ranks, 2 * chunk_rows);
  std::vector<std::vector<Shard>> back(static_cast<std::size_t>(ranks));
  std::int64_t cursor = 0;
  for (const PlannedDocument& document : documents) {
    std::int64_t prefix = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t tokens = chunk_tokens(document.tokens, chunks, cursor, chunk);
      std::vector<Shard>& shards = chunk < ranks ? plan.ranks[static_cast<std::size_t>(chunk)]
                                                 : back[static_cast<std::size_t>(chunks - 1 - chunk)];
      append_shard(shards, {document.document, prefix, tokens, document.tokens});
      prefix += tokens;
    }
    cursor = (cursor + document.tokens) % chunks;
  }
  // The padding is a last document of fewer than 2N tokens: one row each to the chunks from the cursor to the end.
  for (std::int64_t chunk = cursor == 0 ? chunks : cursor; chunk < chunks; ++chunk) {
    std::vector<Shard>& shards = chunk < ranks ? plan.ranks[static_cast<std::size_t>(chunk)]
                                               : back[static_cast<std::size_t>(chunks - 1 - chunk)];
    append_shard(shards, padding_shard(1));
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    append_all(plan.ranks[static_cast<std::size_t>(rank)], back[static_cast<std::size_t>(rank)]);
  }
  return plan;
}

}  // namespace longhaul
