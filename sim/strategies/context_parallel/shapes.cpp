#include "sim/strategies/context_parallel/shapes.h"

#include <algorithm>
#include <map>

#include "sim/strategies/context_parallel/placed.h"

namespace longhaul {
RowMapPtr rank_row_map(const std::vector<Shard>& shards) {
  std::vector<RowRun> runs;
  for (const Shard& shard : shards) runs.push_back(run_of(shard));
  return make_row_map(std::move(runs));
}

namespace {

// What a rank's pieces of the ordered rows are, in one stage or in two.
using MakeStages = std::vector<CpStageShape> (*)(const std::vector<PlacedShard>& own,
                                                 const std::map<DocumentId, std::int64_t>& base, std::int64_t ranks);

std::vector<CpStageShape> one_stage(const std::vector<PlacedShard>& own, const std::map<DocumentId, std::int64_t>& base,
                                    std::int64_t) {
  std::vector<Piece> pieces;
  for (const PlacedShard& placed : own) {
    if (placed.shard.is_padding()) continue;
    pieces.push_back(causal_piece(placed.shard, placed.row, base.at(placed.shard.document), 0));
  }
  return {{nullptr, make_piece_list(std::move(pieces))}};
}

// Front chunks (0 .. N-1 of a document's 2N), then back chunks; padding goes with the front.
std::vector<CpStageShape> chunk_stages(const std::vector<PlacedShard>& own,
                                       const std::map<DocumentId, std::int64_t>& base, std::int64_t ranks) {
  StageBuilder stages(2);
  for (const PlacedShard& placed : own) {
    const Shard& shard = placed.shard;
    if (shard.is_padding()) {
      stages.take(0, placed.row, shard.tokens);
      continue;
    }
    const std::int64_t chunk = (shard.document_tokens + 2 * ranks - 1) / (2 * ranks);
    const std::int64_t front = std::clamp<std::int64_t>(ranks * chunk - shard.prefix, 0, shard.tokens);
    const auto add = [&](std::size_t stage, std::int64_t first, std::int64_t tokens) {
      if (tokens == 0) return;
      const Shard part{shard.document, shard.prefix + first, tokens, shard.document_tokens};
      stages.add(stage, causal_piece(part, stages.take(stage, placed.row + first, tokens), base.at(shard.document), 0));
    };
    add(0, 0, front);
    add(1, front, shard.tokens - front);
  }
  return stages.finish();
}

std::vector<CpRankShape> ordered_shapes(const CpPlan& plan, MakeStages make_stages) {
  const GatheredRows gathered = gather_rows(plan, false);
  GatherShape common;
  common.padded_rows = gathered.padded;
  common.gathered_rows = gathered.map;
  std::map<DocumentId, std::int64_t> base;  // first ordered row of each document
  std::vector<RowRun> ordered;
  CopyLists copy, none;
  std::int64_t row = 0;
  for (const auto& [document, shards] : gathered.of_document) {
    base[document] = row;
    for (const PlacedShard& placed : shards) copy.add(placed.row, row + placed.shard.prefix, placed.shard.tokens);
    const std::int64_t tokens = shards.front().shard.document_tokens;
    ordered.push_back({document, TokenView::kClean, 0, tokens});
    row += tokens;
  }
  common.ordered_rows = make_row_map(std::move(ordered));
  set_copy(common.common_source, common.common_target, copy);
  set_copy(common.gathered_source, common.gathered_target, none);
  common.local_source = common.local_target = common.gathered_source;

  std::vector<CpRankShape> shapes;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    CpRankShape shape;
    shape.rows = rank_row_map(plan.ranks[rank]);
    shape.gathers = {common};
    shape.gathers.front().send_rows = gathered.sent[rank];
    shape.stages = make_stages(place(plan.ranks[rank], rank), base, plan.rank_count());
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace

std::vector<CpRankShape> full_gather_shapes(const CpPlan& plan) { return ordered_shapes(plan, one_stage); }

std::vector<CpRankShape> chunk_stage_shapes(const CpPlan& plan) { return ordered_shapes(plan, chunk_stages); }

namespace {

// Rows in token order: where each document's begin, and the runs that make them up.
struct OrderedRows {
  std::map<DocumentId, std::int64_t> base;
  std::vector<RowRun> runs;
  std::int64_t rows = 0;

  void add(DocumentId document, std::int64_t tokens) {
    base[document] = rows;
    runs.push_back({document, TokenView::kClean, 0, tokens});
    rows += tokens;
  }
};

// Per-Doc documents are needed nearly everywhere: all ranks share their place and their copy lists.
OrderedRows common_rows(const CpPlan& plan, const GatheredRows& gathered, GatherShape& common) {
  OrderedRows ordered;
  CopyLists copy;
  for (const DocumentId document : plan.per_doc_documents) {
    const auto found = gathered.of_document.find(document);
    if (found == gathered.of_document.end()) continue;  // came to stand whole on one rank
    for (const PlacedShard& placed : found->second) {
      copy.add(placed.row, ordered.rows + placed.shard.prefix, placed.shard.tokens);
    }
    ordered.add(document, found->second.front().shard.document_tokens);
  }
  common.padded_rows = gathered.padded;
  common.gathered_rows = gathered.map;
  set_copy(common.common_source, common.common_target, copy);
  return ordered;
}

// Of the documents outside `common`: the end of the furthest shard on this rank that looks back.
std::map<DocumentId, std::int64_t> furthest_ends(const std::vector<PlacedShard>& own, const OrderedRows& common) {
  std::map<DocumentId, std::int64_t> furthest;
  for (const PlacedShard& placed : own) {
    const Shard& shard = placed.shard;
    if (shard.is_padding() || shard.prefix == 0 || common.base.count(shard.document) > 0) continue;
    std::int64_t& end = furthest[shard.document];
    end = std::max(end, shard.prefix + shard.tokens);
  }
  return furthest;
}

// Own rows that the ordered copy needs. Own shards of a common document came back through the gather, but for the last
// one, which is not sent.
CopyLists local_copy(const std::vector<PlacedShard>& own, const OrderedRows& common, const OrderedRows& ordered,
                     const std::map<DocumentId, std::int64_t>& furthest) {
  CopyLists local;
  for (const PlacedShard& placed : own) {
    const Shard& shard = placed.shard;
    if (shard.is_padding()) continue;
    const auto end = furthest.find(shard.document);
    std::int64_t rows = 0;
    if (common.base.count(shard.document) > 0)
      rows = shard.is_last() ? shard.tokens : 0;
    else if (end != furthest.end())
      rows = std::min(shard.tokens, end->second - shard.prefix);
    if (rows > 0) local.add(placed.row, ordered.base.at(shard.document) + shard.prefix, rows);
  }
  return local;
}

// Pieces of a rank: of shards that begin their document, in place (operand 0); of the others, against the ordered rows
// (the operand after it). Two stages: the first kind and padding, then the second, which waits for what was gathered.
std::vector<CpStageShape> sharing_stages(const std::vector<PlacedShard>& own, const OrderedRows& ordered,
                                         bool overlap) {
  StageBuilder stages(overlap ? 2 : 1);
  for (const PlacedShard& placed : own) {
    const Shard& shard = placed.shard;
    const bool local = shard.is_padding() || shard.prefix == 0;
    const std::size_t stage = overlap && !local ? 1 : 0;
    const std::int64_t q_row = stages.take(stage, placed.row, shard.tokens);
    if (shard.is_padding()) continue;
    const int operand = local || overlap ? 0 : 1;
    stages.add(stage, causal_piece(shard, q_row, local ? placed.row : ordered.base.at(shard.document), operand));
  }
  std::vector<CpStageShape> shapes = stages.finish();
  if (!overlap) shapes.front().rows = nullptr;  // all, in order
  return shapes;
}

// The ordered rows and copies of one rank; `gather` holds what all ranks share.
OrderedRows set_ordered(GatherShape& gather, const std::map<DocumentId, std::vector<PlacedShard>>& gathered,
                        const OrderedRows& common, const std::vector<PlacedShard>& own, std::size_t rank) {
  const std::map<DocumentId, std::int64_t> furthest = furthest_ends(own, common);
  OrderedRows ordered = common;
  CopyLists remote;
  for (const auto& [document, end] : furthest) {
    const auto found = gathered.find(document);
    if (found != gathered.end()) {
      for (const PlacedShard& placed : found->second) {
        const std::int64_t rows = std::min(placed.shard.tokens, end - placed.shard.prefix);
        if (placed.rank != rank && rows > 0) remote.add(placed.row, ordered.rows + placed.shard.prefix, rows);
      }
    }
    ordered.add(document, end);
  }
  CopyLists local = local_copy(own, common, ordered, furthest);
  set_copy(gather.gathered_source, gather.gathered_target, remote);
  set_copy(gather.local_source, gather.local_target, local);
  gather.ordered_rows = make_row_map(std::vector<RowRun>(ordered.runs));
  return ordered;
}

}  // namespace

std::vector<CpRankShape> sharding_aware_shapes(const CpPlan& plan, bool overlap) {
  const GatheredRows gathered = gather_rows(plan, true);
  GatherShape shared;
  const OrderedRows common = common_rows(plan, gathered, shared);
  std::vector<CpRankShape> shapes;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const std::vector<PlacedShard> own = place(plan.ranks[rank], rank);
    CpRankShape shape;
    shape.rows = rank_row_map(plan.ranks[rank]);
    shape.gathers = {shared};
    shape.gathers.front().send_rows = gathered.sent[rank];
    const OrderedRows ordered = set_ordered(shape.gathers.front(), gathered.of_document, common, own, rank);
    shape.stages = sharing_stages(own, ordered, overlap);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::vector<CpRankShape> exact_shapes(const CpPlan& plan, bool overlap) {
  const std::vector<ReceivedRows> received = needed_rows(plan);
  std::vector<GatherShape> gathers = exact_gathers(received);
  std::vector<CpRankShape> shapes;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const std::vector<PlacedShard> own = place(plan.ranks[rank], rank);
    std::map<DocumentId, std::vector<PlacedShard>> of_document;
    for (const PlacedShard& placed : received[rank].shards) of_document[placed.shard.document].push_back(placed);
    CpRankShape shape;
    shape.rows = rank_row_map(plan.ranks[rank]);
    shape.gathers = {std::move(gathers[rank])};
    shape.gathers.front().common_source = shape.gathers.front().common_target = make_row_list({});
    const OrderedRows ordered = set_ordered(shape.gathers.front(), of_document, {}, own, rank);
    shape.stages = sharing_stages(own, ordered, overlap);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace longhaul
