#include "sim/strategies/context_parallel/ring_shapes.h"

#include <map>
#include <utility>

#include "sim/strategies/context_parallel/shapes.h"

namespace longhaul {
namespace {

// The shards of one rank with their rows, and which of them belong to each document.
struct RankShards {
  struct Placed {
    Shard shard;
    std::int64_t row = 0;
  };
  std::vector<Placed> placed;
  std::map<DocumentId, std::vector<std::size_t>> of_document;  // indices into `placed`
};

RankShards place(const std::vector<Shard>& shards) {
  RankShards rank;
  std::int64_t row = 0;
  for (const Shard& shard : shards) {
    if (!shard.is_padding()) {
      rank.of_document[shard.document].push_back(rank.placed.size());
      rank.placed.push_back({shard, row});
    }
    row += shard.tokens;
  }
  return rank;
}

// Shards that take part in a step, in row order: their rows as a list, and where each begins in it.
class UsedRows {
 public:
  explicit UsedRows(const RankShards& rank)
      : rank_(rank), used_(rank.placed.size(), 0), begin_(rank.placed.size(), 0) {}
  void use(std::size_t index) { used_[index] = 1; }
  RowListPtr make_list() {
    std::vector<RowSpan> spans;
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (used_[i] == 0) continue;
      const RankShards::Placed& placed = rank_.placed[i];
      spans.push_back({placed.row, placed.shard.tokens});
      begin_[i] = rows;
      rows += placed.shard.tokens;
    }
    return make_row_list(std::move(spans));
  }
  std::int64_t begin(std::size_t index) const { return begin_[index]; }

 private:
  const RankShards& rank_;
  std::vector<char> used_;
  std::vector<std::int64_t> begin_;
};

Piece piece_of(const Shard& q, std::int64_t q_row, const Shard& k, std::int64_t k_row) {
  Piece piece;
  piece.q_row = q_row;
  piece.q_count = q.tokens;
  piece.q_token = q.prefix;
  piece.k_row = k_row;
  piece.k_count = k.tokens;
  piece.k_token = k.prefix;
  piece.rule = k.prefix + k.tokens <= q.prefix ? MaskRule::kFull : MaskRule::kCausal;
  return piece;
}

// `whole`: step 0, whose views take all rows.
RingStepShape step_shape(const RankShards& own, const RankShards& owner, const RowMapPtr& block_rows, bool whole) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;  // query shard, key shard
  UsedRows queries(own), keys(owner);
  for (std::size_t q = 0; q < own.placed.size(); ++q) {
    const Shard& shard = own.placed[q].shard;
    const auto found = owner.of_document.find(shard.document);
    if (found == owner.of_document.end()) continue;
    for (const std::size_t k : found->second) {
      if (owner.placed[k].shard.prefix >= shard.prefix + shard.tokens) continue;  // no key before the last query
      pairs.emplace_back(q, k);
      queries.use(q);
      keys.use(k);
    }
  }
  RingStepShape step;
  step.block_rows = block_rows;
  const RowListPtr all = make_row_list({{0, block_rows->rows}});
  step.query_rows = whole ? all : queries.make_list();
  step.key_rows = whole ? all : keys.make_list();
  std::vector<Piece> pieces;
  pieces.reserve(pairs.size());
  for (const auto& [q, k] : pairs) {
    const RankShards::Placed& query = own.placed[q];
    const RankShards::Placed& key = owner.placed[k];
    pieces.push_back(
        piece_of(query.shard, whole ? query.row : queries.begin(q), key.shard, whole ? key.row : keys.begin(k)));
  }
  step.pieces = make_piece_list(std::move(pieces));
  return step;
}

}  // namespace

std::vector<std::vector<RingStepShape>> ring_shapes(const CpPlan& plan) {
  const std::size_t ranks = plan.ranks.size();
  std::vector<RankShards> placed;
  std::vector<RowMapPtr> rows;
  for (const std::vector<Shard>& shards : plan.ranks) {
    placed.push_back(place(shards));
    rows.push_back(rank_row_map(shards));
  }
  std::vector<std::vector<RingStepShape>> shapes(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t t = 0; t < ranks; ++t) {
      const std::size_t owner = (rank + ranks - t) % ranks;
      shapes[rank].push_back(step_shape(placed[rank], placed[owner], rows[owner], t == 0));
    }
  }
  return shapes;
}

}  // namespace longhaul
