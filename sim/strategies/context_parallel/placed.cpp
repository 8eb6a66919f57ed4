#include "sim/strategies/context_parallel/placed.h"

#include <algorithm>
#include <map>

namespace longhaul {

std::vector<PlacedShard> place(const std::vector<Shard>& shards, std::size_t rank) {
  std::vector<PlacedShard> placed;
  std::int64_t row = 0;
  for (const Shard& shard : shards) {
    placed.push_back({shard, row, rank});
    row += shard.tokens;
  }
  return placed;
}

RowRun run_of(const Shard& shard) { return {shard.document, TokenView::kClean, shard.prefix, shard.tokens}; }

Piece causal_piece(const Shard& q, std::int64_t q_row, std::int64_t k_row, int operand) {
  Piece piece;
  piece.q_row = q_row;
  piece.q_count = q.tokens;
  piece.q_token = q.prefix;
  piece.k_row = k_row;
  piece.k_count = q.prefix + q.tokens;
  piece.k_token = 0;
  piece.operand = static_cast<std::int16_t>(operand);
  piece.rule = MaskRule::kCausal;
  return piece;
}

Piece run_piece(const Shard& q, std::int64_t q_row, const Shard& k, std::int64_t k_row, int operand) {
  Piece piece;
  piece.q_row = q_row;
  piece.q_count = q.tokens;
  piece.q_token = q.prefix;
  piece.k_row = k_row;
  piece.k_count = k.tokens;
  piece.k_token = k.prefix;
  piece.operand = static_cast<std::int16_t>(operand);
  piece.rule = k.prefix + k.tokens <= q.prefix ? MaskRule::kFull : MaskRule::kCausal;
  return piece;
}

GatheredRows gather_rows(const CpPlan& plan, bool only_sendable) {
  GatheredRows gathered;
  const auto is_sent = [&](const Shard& shard) {
    return only_sendable ? !shard.is_padding() && !shard.is_last() : true;
  };
  std::vector<std::vector<PlacedShard>> sent(plan.ranks.size());
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    std::int64_t rows = 0;
    std::vector<RowSpan> spans;
    for (const PlacedShard& placed : place(plan.ranks[rank], rank)) {
      if (!is_sent(placed.shard)) continue;
      spans.push_back({placed.row, placed.shard.tokens});
      sent[rank].push_back({placed.shard, rows, rank});
      rows += placed.shard.tokens;
    }
    gathered.sent.push_back(make_row_list(std::move(spans)));
    gathered.padded = std::max(gathered.padded, rows);
  }
  std::vector<RowRun> runs;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    std::int64_t rows = 0;
    for (const PlacedShard& placed : sent[rank]) {
      runs.push_back(run_of(placed.shard));
      rows += placed.shard.tokens;
      if (placed.shard.is_padding()) continue;
      const std::int64_t row = static_cast<std::int64_t>(rank) * gathered.padded + placed.row;
      gathered.of_document[placed.shard.document].push_back({placed.shard, row, rank});
    }
    runs.push_back({kPaddingDocument, TokenView::kClean, 0, gathered.padded - rows});
  }
  gathered.map = make_row_map(std::move(runs));
  return gathered;
}

void set_copy(RowListPtr& source, RowListPtr& target, CopyLists& lists) {
  source = make_row_list(std::move(lists.source));
  target = make_row_list(std::move(lists.target));
}

std::int64_t StageBuilder::take(std::size_t stage, std::int64_t row, std::int64_t count) {
  const std::int64_t first = rows_[stage];
  spans_[stage].push_back({row, count});
  rows_[stage] += count;
  return first;
}

std::vector<CpStageShape> StageBuilder::finish() {
  std::vector<CpStageShape> stages(spans_.size());
  for (std::size_t i = 0; i < stages.size(); ++i) {
    stages[i].rows = make_row_list(std::move(spans_[i]));
    stages[i].pieces = make_piece_list(std::move(pieces_[i]));
  }
  return stages;
}

std::vector<ReceivedRows> needed_rows(const CpPlan& plan) {
  std::map<DocumentId, std::vector<PlacedShard>> holders;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    for (const PlacedShard& placed : place(plan.ranks[rank], rank)) {
      if (!placed.shard.is_padding()) holders[placed.shard.document].push_back(placed);
    }
  }
  std::vector<ReceivedRows> received(plan.ranks.size());
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    std::map<DocumentId, std::int64_t> furthest;
    for (const Shard& shard : plan.ranks[rank]) {
      if (shard.is_padding() || shard.prefix == 0) continue;
      std::int64_t& end = furthest[shard.document];
      end = std::max(end, shard.prefix + shard.tokens);
    }
    std::vector<PlacedShard> needed;
    for (const auto& [document, end] : furthest) {
      for (PlacedShard placed : holders.at(document)) {
        placed.shard.tokens = std::min(placed.shard.tokens, end - placed.shard.prefix);
        if (placed.rank != rank && placed.shard.tokens > 0) needed.push_back(placed);
      }
    }
    std::stable_sort(needed.begin(), needed.end(), [](const PlacedShard& a, const PlacedShard& b) {
      return a.rank != b.rank ? a.rank < b.rank : a.row < b.row;
    });
    ReceivedRows& rows = received[rank];
    for (const PlacedShard& placed : needed) {
      rows.sources.push_back(placed);
      rows.shards.push_back({placed.shard, rows.rows, placed.rank});
      rows.rows += placed.shard.tokens;
    }
  }
  return received;
}

std::vector<GatherShape> exact_gathers(const std::vector<ReceivedRows>& received) {
  const std::size_t ranks = received.size();
  // By sender and receiver: the sender's local rows, and where they arrive.
  std::vector<std::vector<std::vector<RowSpan>>> sends(ranks, std::vector<std::vector<RowSpan>>(ranks));
  std::vector<std::vector<RowSpan>> arrivals(ranks, std::vector<RowSpan>(ranks));  // [receiver][sender]
  for (std::size_t to = 0; to < ranks; ++to) {
    for (std::size_t i = 0; i < received[to].shards.size(); ++i) {
      const PlacedShard& arrives = received[to].shards[i];
      const std::size_t from = arrives.rank;
      sends[from][to].push_back({received[to].sources[i].row, arrives.shard.tokens});
      RowSpan& span = arrivals[to][from];
      if (span.count == 0) span.begin = arrives.row;
      span.count += arrives.shard.tokens;
    }
  }
  const bool anything =
      std::any_of(received.begin(), received.end(), [](const ReceivedRows& rows) { return rows.rows > 0; });
  std::vector<GatherShape> gathers(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    GatherShape& gather = gathers[rank];
    std::vector<RowSpan> all;
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      std::int64_t rows = 0;
      for (const RowSpan& span : sends[rank][peer]) rows += span.count;
      if (peer != rank && (rows > 0 || arrivals[rank][peer].count > 0)) {
        gather.peers.push_back({static_cast<std::int32_t>(peer), make_row_list({{gather.padded_rows, rows}}),
                                make_row_list({arrivals[rank][peer]})});
      }
      all.insert(all.end(), sends[rank][peer].begin(), sends[rank][peer].end());
      gather.padded_rows += rows;
    }
    gather.send_rows = make_row_list(std::move(all));
    // A call of the whole group: one that moves nothing takes part in it. If nobody moves anything there is no call.
    if (gather.peers.empty() && anything) gather.peers.push_back({static_cast<std::int32_t>(rank), nullptr, nullptr});
    std::vector<RowRun> runs;
    for (const PlacedShard& placed : received[rank].shards) runs.push_back(run_of(placed.shard));
    gather.gathered_rows = make_row_map(std::move(runs));
  }
  return gathers;
}

}  // namespace longhaul
