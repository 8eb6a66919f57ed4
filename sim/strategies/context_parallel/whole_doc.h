// The Whole-Doc part of a FlashCP plan in the making: shards on ranks, and the cut rules that equalise their tokens.
//
// Internal to flashcp.cpp. Units: tokens, pairs. Invariant between steps: each token of the whole documents is on
// exactly one rank, and `pairs` and `nonlast` of a rank equal the sums over its shards plus its Per-Doc part.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/strategies/context_parallel/flashcp.h"

namespace longhaul::flash {

// What a rank holds of the Per-Doc documents, and how many rows are left for whole ones.
struct RankBase {
  std::int64_t tokens = 0;
  std::int64_t pairs = 0;
  std::int64_t nonlast = 0;
};

struct WholeRank {
  std::vector<Shard> shards;
  std::int64_t target = 0;   // T_j: tokens of whole documents that it must end with
  std::int64_t tokens = 0;   // of whole documents
  std::int64_t pairs = 0;    // the Per-Doc part included if it counts
  std::int64_t nonlast = 0;  // the Per-Doc part included
};

class WholeDocPlan {
 public:
  // `average_pairs`: Wavg, the pairs that each rank would have in perfect balance.
  WholeDocPlan(std::vector<WholeRank> ranks, double average_pairs, const FlashCpOptions& options);

  // Each document whole on the rank with the fewest pairs so far (LPT if they come longest first).
  void place_whole(std::span<const PlannedDocument> documents);
  // Moves shards from the rank furthest above its target to the one furthest below, until all are on target.
  void equalise();
  // Exchanges tails for heads between the ranks with most and fewest pairs, until `limit` x average holds, no exchange
  // helps, or 16 exchanges a rank were made.
  void swap_to(double limit);

  std::int64_t pairs_max() const;
  // What each rank holds; the plan has none of it then.
  std::vector<std::vector<Shard>> shards() &&;

 private:
  struct Move {
    std::size_t shard = 0;
    std::int64_t first = 0;  // offset of the moved piece within the shard
    std::int64_t tokens = 0;
  };

  void equalise_among(std::size_t begin, std::size_t end);
  Move cheapest_move(const WholeRank& from, const WholeRank& to, std::int64_t tokens) const;
  Move naive_move(const WholeRank& from, std::int64_t tokens) const;
  double move_cost(const WholeRank& from, const WholeRank& to, const Move& move) const;
  void apply(WholeRank& from, WholeRank& to, const Move& move);
  void add(WholeRank& rank, Shard shard);
  void update_nonlast_max(std::int64_t before, const WholeRank& from, const WholeRank& to);
  bool swap_once();

  std::vector<WholeRank> ranks_;
  double average_pairs_;
  double rows_per_rank_ = 1;  // C/N, the scale of sent tokens in the cost
  FlashCpOptions options_;
  std::size_t ranks_per_node_ = 1;  // all ranks where nodes do not matter
  std::int64_t nonlast_max_ = 0;
};

}  // namespace longhaul::flash
