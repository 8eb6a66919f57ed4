#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "sim/core/integers.h"
#include "sim/strategies/context_parallel/placed.h"
#include "sim/strategies/context_parallel/shuffle.h"

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

// The benchmark's min_chunk_size, max_num_chunks and random_seed (exps/dist_attn/benchmark_conf.py, run_benchmark.py).
constexpr std::int64_t kDealtRows = 512;
constexpr std::int64_t kMostDealt = 4096;
constexpr std::uint32_t kDealSeed = 42;

// Rows up to `end` (not including it) that go to one stage.
struct DealtRows {
  std::int64_t end = 0;
  std::size_t stage = 0;
};

// A run of rows a stage, whose numbers differ by at most one.
std::vector<DealtRows> in_order_deal(std::int64_t rows, std::int64_t stages) {
  std::vector<DealtRows> deal;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    deal.push_back({ceil_div((stage + 1) * rows, stages), static_cast<std::size_t>(stage)});
  }
  return deal;
}

// Runs of 512 rows in the order of a shuffle; the stages take about as many each, one after the other, where the
// rank's own part counts as the first stage's first run.
std::vector<DealtRows> shuffled_deal(std::int64_t rows, std::int64_t stages) {
  const auto runs_of = [&](std::int64_t run) { return ceil_div(rows, run); };
  const std::int64_t run = runs_of(kDealtRows) <= kMostDealt ? kDealtRows : runs_of(kMostDealt);
  const std::int64_t runs = runs_of(run);
  const std::vector<std::int64_t> order = python_shuffle(runs, kDealSeed);
  std::vector<DealtRows> deal(order.size());
  for (std::size_t i = 0; i < deal.size(); ++i) {
    deal[i].end = std::min(rows, static_cast<std::int64_t>(i + 1) * run);
  }
  const std::int64_t used = std::min(stages, runs);
  std::size_t next = 0;
  for (std::int64_t stage = 0; stage < used; ++stage) {
    const std::int64_t share = (runs + 1) / used + (stage < (runs + 1) % used ? 1 : 0) - (stage == 0 ? 1 : 0);
    for (const std::size_t end = next + static_cast<std::size_t>(share); next < end; ++next) {
      deal[static_cast<std::size_t>(order[next])].stage = static_cast<std::size_t>(stage);
    }
  }
  return deal;
}

// The rows that a rank receives, dealt to `stages` in order of documents and tokens, the order in which MagiAttention
// lists the key ranges that a rank lacks. In order of senders a stage would have a few of them alone, whose links would
// be the others' bottleneck.
std::vector<ReceivedRows> split_rows(const ReceivedRows& received, std::size_t stages, CastDeal by) {
  std::vector<std::size_t> order(received.shards.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Shard& x = received.shards[a].shard;
    const Shard& y = received.shards[b].shard;
    return x.document != y.document ? x.document < y.document : x.prefix < y.prefix;
  });
  const auto count = static_cast<std::int64_t>(stages);
  const std::vector<DealtRows> deal =
      by == CastDeal::kShuffled ? shuffled_deal(received.rows, count) : in_order_deal(received.rows, count);
  std::vector<std::vector<CastRun>> runs(stages);
  auto dealt = deal.begin();
  std::int64_t row = 0;
  for (const std::size_t i : order) {
    const PlacedShard& placed = received.shards[i];
    const std::int64_t begin = row;
    const std::int64_t end = row + placed.shard.tokens;
    while (row < end) {
      while (dealt->end <= row) ++dealt;
      const std::size_t stage = dealt->stage;
      std::int64_t next = dealt->end;
      // Runs of one stage that follow each other are one.
      while (next < end && std::next(dealt)->stage == stage) next = (++dealt)->end;
      Shard shard = placed.shard;
      shard.prefix += row - begin;
      shard.tokens = std::min(next, end) - row;
      runs[stage].push_back({{shard, 0, placed.rank}, {shard, received.sources[i].row + row - begin, placed.rank}});
      row += shard.tokens;
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

std::vector<CpRankShape> cast_shapes(const CpPlan& plan, int stages, CastDeal deal) {
  const std::size_t ranks = plan.ranks.size();
  std::vector<std::vector<ReceivedRows>> by_stage(static_cast<std::size_t>(stages), std::vector<ReceivedRows>(ranks));
  const std::vector<ReceivedRows> received = needed_rows(plan);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<ReceivedRows> parts = split_rows(received[rank], by_stage.size(), deal);
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
