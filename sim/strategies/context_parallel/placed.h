// Shards with the rows at which they stand: what the shape makers of this folder share.
#pragma once

#include <map>
#include <vector>

#include "sim/strategies/context_parallel/shapes.h"

namespace longhaul {

// A shard with its first row: locally, or among the gathered rows.
struct PlacedShard {
  Shard shard;
  std::int64_t row = 0;
  std::size_t rank = 0;  // that owns it
};

// The shards of a rank in local order, padding included.
std::vector<PlacedShard> place(const std::vector<Shard>& shards, std::size_t rank);

RowRun run_of(const Shard& shard);
// The shard's queries, from `q_row` of the stage's rows on, against all tokens of the document up to its end, which
// stand in token order from `k_row` of the operand on.
Piece causal_piece(const Shard& q, std::int64_t q_row, std::int64_t k_row, int operand);
// Queries against a run of keys of the same document.
Piece run_piece(const Shard& q, std::int64_t q_row, const Shard& k, std::int64_t k_row, int operand);

// Shards of all ranks in gathered order, and for each rank its part.
struct GatheredRows {
  RowMapPtr map;
  std::int64_t padded = 0;
  std::map<DocumentId, std::vector<PlacedShard>> of_document;  // rows among the gathered ones
  std::vector<RowListPtr> sent;                                // local rows, by rank
};
// `only_sendable`: without padding and last shards.
GatheredRows gather_rows(const CpPlan& plan, bool only_sendable);

// Two lists of equal rows: where rows come from and where they go.
struct CopyLists {
  std::vector<RowSpan> source, target;
  void add(std::int64_t from, std::int64_t to, std::int64_t rows) {
    source.push_back({from, rows});
    target.push_back({to, rows});
  }
};
void set_copy(RowListPtr& source, RowListPtr& target, CopyLists& lists);

// Rows and pieces of stages that list their query rows.
class StageBuilder {
 public:
  explicit StageBuilder(std::size_t stages) : spans_(stages), rows_(stages, 0), pieces_(stages) {}
  // Takes local rows [row, row + count) into the stage; gives their first row in its list.
  std::int64_t take(std::size_t stage, std::int64_t row, std::int64_t count);
  void add(std::size_t stage, const Piece& piece) { pieces_[stage].push_back(piece); }
  std::vector<CpStageShape> finish();

 private:
  std::vector<std::vector<RowSpan>> spans_;
  std::vector<std::int64_t> rows_;
  std::vector<std::vector<Piece>> pieces_;
};

// Rows that other ranks send to one rank, in order of senders and of their local rows, and where each stands.
struct ReceivedRows {
  std::vector<PlacedShard> shards;   // row: among the rows received; rank: the sender
  std::vector<PlacedShard> sources;  // the same, row: local to the sender
  std::int64_t rows = 0;
};
// What each rank needs of the others (flashcp.md 1.2, "who needs what"): of every document of which it holds a shard
// that does not begin it, the tokens below the end of the furthest such shard that others own.
std::vector<ReceivedRows> needed_rows(const CpPlan& plan);

// Sends, receives and maps of an exact gather that brings `received[j]` to rank j.
std::vector<GatherShape> exact_gathers(const std::vector<ReceivedRows>& received);

}  // namespace longhaul
