#include <algorithm>
#include <map>

#include "sim/strategies/context_parallel/placed.h"

namespace longhaul {
namespace {

// The rows that a rank receives, dealt to `stages` in order of arrival so that their numbers differ by at most one.
std::vector<ReceivedRows> split_rows(const ReceivedRows& received, int stages) {
  std::vector<ReceivedRows> parts(static_cast<std::size_t>(stages));
  std::int64_t row = 0;
  for (std::size_t i = 0; i < received.shards.size(); ++i) {
    const PlacedShard& placed = received.shards[i];
    for (std::int64_t done = 0; done < placed.shard.tokens;) {
      const std::int64_t stage = row * stages / received.rows;
      const std::int64_t end = ((stage + 1) * received.rows + stages - 1) / stages;  // first row of the next stage
      const std::int64_t tokens = std::min(placed.shard.tokens - done, end - row);
      ReceivedRows& part = parts[static_cast<std::size_t>(stage)];
      Shard shard = placed.shard;
      shard.prefix += done;
      shard.tokens = tokens;
      part.shards.push_back({shard, part.rows, placed.rank});
      part.sources.push_back({shard, received.sources[i].row + done, placed.rank});
      part.rows += tokens;
      done += tokens;
      row += tokens;
    }
  }
  return parts;
}

// Pieces of all pairs of own query shards and key runs that see each other; queries that see nothing are left out.
CpStageShape stage_of(const std::vector<PlacedShard>& own, const std::vector<PlacedShard>& keys, bool all_rows) {
  std::map<DocumentId, std::vector<std::size_t>> of_document;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!keys[i].shard.is_padding()) of_document[keys[i].shard.document].push_back(i);
  }
  StageBuilder stage(1);
  for (const PlacedShard& query : own) {
    if (query.shard.is_padding()) continue;
    const auto found = of_document.find(query.shard.document);
    if (found == of_document.end()) continue;
    std::int64_t q_row = all_rows ? query.row : -1;
    for (const std::size_t i : found->second) {
      const Shard& key = keys[i].shard;
      if (key.prefix >= query.shard.prefix + query.shard.tokens) continue;
      if (q_row < 0) q_row = stage.take(0, query.row, query.shard.tokens);
      stage.add(0, run_piece(query.shard, q_row, key, keys[i].row, 0));
    }
  }
  CpStageShape shape = std::move(stage.finish().front());
  if (all_rows) shape.rows = nullptr;
  return shape;
}

}  // namespace

std::vector<CpRankShape> cast_shapes(const CpPlan& plan, int stages) {
  const std::size_t ranks = plan.ranks.size();
  std::vector<std::vector<ReceivedRows>> by_stage(static_cast<std::size_t>(stages), std::vector<ReceivedRows>(ranks));
  const std::vector<ReceivedRows> received = needed_rows(plan);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<ReceivedRows> parts = split_rows(received[rank], stages);
    for (std::size_t stage = 0; stage < parts.size(); ++stage) by_stage[stage][rank] = std::move(parts[stage]);
  }
  std::vector<CpRankShape> shapes(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::vector<PlacedShard> own = place(plan.ranks[rank], rank);
    shapes[rank].rows = rank_row_map(plan.ranks[rank]);
    shapes[rank].stages.push_back(stage_of(own, own, true));
    for (const std::vector<ReceivedRows>& of_stage : by_stage) {
      shapes[rank].stages.push_back(stage_of(own, of_stage[rank].shards, false));
    }
  }
  for (const std::vector<ReceivedRows>& of_stage : by_stage) {
    std::vector<GatherShape> gathers = exact_gathers(of_stage);
    for (std::size_t rank = 0; rank < ranks; ++rank) shapes[rank].gathers.push_back(std::move(gathers[rank]));
  }
  return shapes;
}

}  // namespace longhaul
