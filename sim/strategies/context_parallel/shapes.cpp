#include "sim/strategies/context_parallel/shapes.h"

#include <algorithm>
#include <map>

namespace longhaul {
namespace {

// A shard with the row at which it stands: locally, or among the gathered rows.
struct PlacedShard {
  Shard shard;
  std::int64_t row = 0;
  std::size_t rank = 0;
};

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

Piece causal_piece(const PlacedShard& q, std::int64_t k_row, int operand) {
  Piece piece;
  piece.q_row = q.row;
  piece.q_count = q.shard.tokens;
  piece.q_token = q.shard.prefix;
  piece.k_row = k_row;
  piece.k_count = q.shard.prefix + q.shard.tokens;
  piece.k_token = 0;
  piece.operand = static_cast<std::int16_t>(operand);
  piece.rule = MaskRule::kCausal;
  return piece;
}

// Two lists of equal rows: where rows come from and where they go.
struct CopyLists {
  std::vector<RowSpan> source, target;
  void add(std::int64_t from, std::int64_t to, std::int64_t rows) {
    source.push_back({from, rows});
    target.push_back({to, rows});
  }
};

// Sendable shards of all ranks in gathered order, and for each rank its part.
struct GatheredRows {
  RowMapPtr map;
  std::int64_t padded = 0;
  std::map<DocumentId, std::vector<PlacedShard>> of_document;  // rows among the gathered ones
  std::vector<RowListPtr> sent;                                // local rows, by rank
};

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

}  // namespace

RowMapPtr rank_row_map(const std::vector<Shard>& shards) {
  std::vector<RowRun> runs;
  for (const Shard& shard : shards) runs.push_back(run_of(shard));
  return make_row_map(std::move(runs));
}

std::vector<CpRankShape> full_gather_shapes(const CpPlan& plan) {
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
    shape.gather = common;
    shape.gather.send_rows = gathered.sent[rank];
    std::vector<Piece> pieces;
    for (const PlacedShard& placed : place(plan.ranks[rank], rank)) {
      if (!placed.shard.is_padding()) pieces.push_back(causal_piece(placed, base.at(placed.shard.document), 0));
    }
    shape.pieces = make_piece_list(std::move(pieces));
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

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

// The ordered rows, copies and pieces of one rank; `shape.gather` holds what all ranks share.
void set_rank_shape(CpRankShape& shape, const GatheredRows& gathered, const OrderedRows& common,
                    const std::vector<PlacedShard>& own, std::size_t rank) {
  const std::map<DocumentId, std::int64_t> furthest = furthest_ends(own, common);
  OrderedRows ordered = common;
  CopyLists remote;
  for (const auto& [document, end] : furthest) {
    const auto found = gathered.of_document.find(document);
    if (found != gathered.of_document.end()) {
      for (const PlacedShard& placed : found->second) {
        const std::int64_t rows = std::min(placed.shard.tokens, end - placed.shard.prefix);
        if (placed.rank != rank && rows > 0) remote.add(placed.row, ordered.rows + placed.shard.prefix, rows);
      }
    }
    ordered.add(document, end);
  }
  CopyLists local = local_copy(own, common, ordered, furthest);
  set_copy(shape.gather.gathered_source, shape.gather.gathered_target, remote);
  set_copy(shape.gather.local_source, shape.gather.local_target, local);
  std::vector<Piece> pieces;
  for (const PlacedShard& placed : own) {
    if (placed.shard.is_padding()) continue;
    pieces.push_back(placed.shard.prefix == 0 ? causal_piece(placed, placed.row, 0)
                                              : causal_piece(placed, ordered.base.at(placed.shard.document), 1));
  }
  shape.gather.ordered_rows = make_row_map(std::move(ordered.runs));
  shape.pieces = make_piece_list(std::move(pieces));
}

}  // namespace

std::vector<CpRankShape> sharding_aware_shapes(const CpPlan& plan) {
  const GatheredRows gathered = gather_rows(plan, true);
  GatherShape shared;
  const OrderedRows common = common_rows(plan, gathered, shared);
  std::vector<CpRankShape> shapes;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    CpRankShape shape;
    shape.rows = rank_row_map(plan.ranks[rank]);
    shape.gather = shared;
    shape.gather.send_rows = gathered.sent[rank];
    set_rank_shape(shape, gathered, common, place(plan.ranks[rank], rank), rank);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace longhaul
