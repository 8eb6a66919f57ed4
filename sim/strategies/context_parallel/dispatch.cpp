#include "sim/strategies/context_parallel/dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/refusal.h"

namespace longhaul {
namespace {

std::int64_t total_tokens(std::span<const PlannedDocument> documents) {
  return std::accumulate(documents.begin(), documents.end(), std::int64_t{0},
                         [](std::int64_t sum, const PlannedDocument& document) { return sum + document.tokens; });
}

// The order of lengths; equal ones stay in packing order.
std::vector<std::size_t> by_length(std::span<const PlannedDocument> documents, bool longest_first) {
  std::vector<std::size_t> order(documents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return longest_first ? documents[a].tokens > documents[b].tokens : documents[a].tokens < documents[b].tokens;
  });
  return order;
}

// Where a document is: whole on a rank (ranks = 1) or cut zigzag over a group.
struct Placement {
  std::int64_t first = 0;
  std::int64_t ranks = 0;
};

// Rows in packing order; remainders of cuts over all ranks continue from document to document.
CpPlan plan_of(std::span<const PlannedDocument> documents, std::span<const Placement> places, std::int64_t ranks) {
  CpPlan plan;
  plan.ranks.resize(static_cast<std::size_t>(ranks));
  std::int64_t cursor = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const PlannedDocument& document = documents[i];
    const Placement& place = places[i];
    const std::int64_t chunks = place.ranks == 1 ? 1 : 2 * place.ranks;
    const bool everywhere = place.ranks == ranks && ranks > 1;
    std::int64_t prefix = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t tokens = chunk_tokens(document.tokens, chunks, everywhere ? cursor : 0, chunk);
      const std::int64_t rank = place.first + std::min(chunk, chunks - 1 - chunk);
      append_shard(plan.ranks[static_cast<std::size_t>(rank)], {document.document, prefix, tokens, document.tokens});
      prefix += tokens;
    }
    if (everywhere) {
      cursor = (cursor + document.tokens) % chunks;
      plan.per_doc_documents.push_back(document.document);
    }
  }
  for (std::vector<Shard>& shards : plan.ranks) {
    if (shards.empty()) shards.push_back(padding_shard(1));  // it takes part in the reductions of gradients
    std::int64_t rows = 0;
    for (const Shard& shard : shards) rows += shard.tokens;
    plan.padded_tokens_per_rank = std::max(plan.padded_tokens_per_rank, rows);
  }
  return plan;
}

}  // namespace

tl::expected<CpPlan, std::string> plan_magi(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                            std::int64_t chunk_tokens) {
  LH_ASSERT(chunk_tokens >= 1, "chunks of {} tokens", chunk_tokens);
  if (auto reason = cp_refusal(documents, ranks)) return tl::unexpected(*reason);
  const std::int64_t tokens = total_tokens(documents);
  const std::int64_t chunk = std::min(chunk_tokens, ceil_div(tokens, ranks));
  const std::int64_t slots = ceil_div(ceil_div(tokens, chunk), ranks);  // chunks of a rank
  struct Chunk {
    std::vector<Shard> shards;
    std::int64_t pairs = 0;
  };
  std::vector<Chunk> chunks(static_cast<std::size_t>(slots * ranks));
  // One pass over the documents: packed_rows would walk them again for every chunk.
  std::int64_t row = 0;
  const auto put = [&](Shard shard) {
    while (shard.tokens > 0) {
      Chunk& into = chunks[static_cast<std::size_t>(row / chunk)];
      Shard part = shard;
      part.tokens = std::min(shard.tokens, chunk - row % chunk);
      if (!part.is_padding()) into.pairs += shard_pairs(part.prefix, part.tokens);
      append_shard(into.shards, part);
      row += part.tokens;
      shard.prefix += shard.is_padding() ? 0 : part.tokens;
      shard.tokens -= part.tokens;
    }
  };
  for (const PlannedDocument& document : documents) put({document.document, 0, document.tokens, document.tokens});
  put(padding_shard(slots * ranks * chunk - tokens));

  std::vector<std::size_t> order(chunks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Of equal areas the later chunk goes first, as in the public code.
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return chunks[a].pairs < chunks[b].pairs; });
  std::reverse(order.begin(), order.end());
  using Load = std::pair<std::int64_t, std::size_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  std::vector<std::vector<std::size_t>> held(static_cast<std::size_t>(ranks));
  for (std::size_t rank = 0; rank < held.size(); ++rank) least.emplace(0, rank);
  for (const std::size_t index : order) {
    const auto [pairs, rank] = least.top();
    least.pop();
    held[rank].push_back(index);
    if (static_cast<std::int64_t>(held[rank].size()) < slots) least.emplace(pairs + chunks[index].pairs, rank);
  }
  CpPlan plan;
  plan.ranks.resize(held.size());
  plan.padded_tokens_per_rank = slots * chunk;
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    std::sort(held[rank].begin(), held[rank].end());
    for (const std::size_t index : held[rank]) {
      for (const Shard& shard : chunks[index].shards) append_shard(plan.ranks[rank], shard);
    }
  }
  return plan;
}

tl::expected<CpPlan, std::string> plan_skrull(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                              std::int64_t bucket_tokens) {
  if (auto reason = cp_refusal(documents, ranks)) return tl::unexpected(*reason);
  std::vector<std::int64_t> room(static_cast<std::size_t>(ranks), bucket_tokens), pairs(room.size(), 0);
  std::vector<std::vector<std::size_t>> local(room.size());  // shortest first
  std::vector<Placement> places(documents.size());
  const auto distribute = [&](std::size_t index) {
    places[index] = {0, ranks};
    for (std::int64_t& left : room) left -= ceil_div(documents[index].tokens, ranks);
  };
  for (const std::size_t index : by_length(documents, false)) {
    const std::int64_t tokens = documents[index].tokens;
    const auto idle = static_cast<std::size_t>(std::min_element(pairs.begin(), pairs.end()) - pairs.begin());
    const auto free = static_cast<std::size_t>(std::max_element(room.begin(), room.end()) - room.begin());
    const std::size_t rank = room[idle] >= tokens ? idle : free;
    if (room[rank] >= tokens) {
      places[index] = {static_cast<std::int64_t>(rank), 1};
      room[rank] -= tokens;
      pairs[rank] += causal_pairs(tokens);
      local[rank].push_back(index);
      continue;
    }
    distribute(index);
    while (true) {  // roll back
      const auto full = static_cast<std::size_t>(std::min_element(room.begin(), room.end()) - room.begin());
      if (room[full] >= 0) break;
      if (local[full].empty()) {
        return tl::unexpected(
            fmt::format("{} tokens do not fit {} buckets of {}", total_tokens(documents), ranks, bucket_tokens));
      }
      const std::size_t back = local[full].back();
      local[full].pop_back();
      room[full] += documents[back].tokens;
      pairs[full] -= causal_pairs(documents[back].tokens);
      distribute(back);
    }
  }
  return plan_of(documents, places, ranks);
}

tl::expected<CpPlan, std::string> plan_hybrid_cp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                 std::int64_t rank_tokens) {
  LH_ASSERT(rank_tokens >= 1, "{} tokens a rank", rank_tokens);
  if (auto reason = cp_refusal(documents, ranks)) return tl::unexpected(*reason);
  std::vector<double> work(static_cast<std::size_t>(ranks), 0);
  std::vector<Placement> places(documents.size());
  for (const std::size_t index : by_length(documents, true)) {
    const std::int64_t tokens = documents[index].tokens;
    std::int64_t group = 1;
    while (group * rank_tokens < tokens && group < ranks) group *= 2;
    group = std::min(group, ranks);
    const auto load = [&](std::int64_t first) {
      return *std::max_element(work.begin() + first, work.begin() + first + group);
    };
    std::int64_t best = 0;
    for (std::int64_t first = group; first + group <= ranks; first += group) {
      if (load(first) < load(best)) best = first;
    }
    places[index] = {best, group};
    const double each = static_cast<double>(tokens) * static_cast<double>(tokens) / static_cast<double>(group);
    for (std::int64_t rank = best; rank < best + group; ++rank) work[static_cast<std::size_t>(rank)] += each;
  }
  return plan_of(documents, places, ranks);
}

}  // namespace longhaul
