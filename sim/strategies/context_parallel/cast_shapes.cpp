#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "sim/strategies/context_parallel/placed.h"

namespace longhaul {
namespace {

// A run of received rows: where it stands here (row is set last) and at its owner.
struct CastRun {
  PlacedShard placed, source;
};

// Rows of one stage as they arrive: by senders, then by their local rows.
ReceivedRows in_order_of_arrival(std::vector<CastRun> runs) {
  std::sort(runs.begin(), runs.end(), [](const CastRun& a, const CastRun& b) {
    return a.source.rank != b.source.rank ? a.source.rank < b.source.rank : a.source.row < b.source.row;
  });
  ReceivedRows part;
  for (CastRun& run : runs) {
    run.placed.row = part.rows;
    part.rows += run.placed.shard.tokens;
    part.shards.push_back(run.placed);
    part.sources.push_back(run.source);
  }
  return part;
}

// The rows that a rank receives, dealt to `stages` in order of documents and tokens, as MagiAttention cuts the key
// ranges that a rank lacks, so that their numbers differ by at most one. In order of senders a stage would have a few
// of them alone, whose links would be the others' bottleneck.
std::vector<ReceivedRows> split_rows(const ReceivedRows& received, int stages) {
  std::vector<std::size_t> order(received.shards.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Shard& x = received.shards[a].shard;
    const Shard& y = received.shards[b].shard;
    return x.document != y.document ? x.document < y.document : x.prefix < y.prefix;
  });
  std::vector<std::vector<CastRun>> runs(static_cast<std::size_t>(stages));
  std::int64_t row = 0;
  for (const std::size_t i : order) {
    const PlacedShard& placed = received.shards[i];
    for (std::int64_t done = 0; done < placed.shard.tokens;) {
      const std::int64_t stage = row * stages / received.rows;
      const std::int64_t end = ((stage + 1) * received.rows + stages - 1) / stages;  // first row of the next stage
      const std::int64_t tokens = std::min(placed.shard.tokens - done, end - row);
      Shard shard = placed.shard;
      shard.prefix += done;
      shard.tokens = tokens;
      runs[static_cast<std::size_t>(stage)].push_back(
          {{shard, 0, placed.rank}, {shard, received.sources[i].row + done, placed.rank}});
      done += tokens;
      row += tokens;
    }
  }
  std::vector<ReceivedRows> parts;
  for (std::vector<CastRun>& of_stage : runs) parts.push_back(in_order_of_arrival(std::move(of_stage)));
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
