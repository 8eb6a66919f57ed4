#include "sim/strategies/context_parallel/whole_doc.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul::flash {
namespace {

// Weight of the sum of sent tokens against their maximum over ranks (flashcp.md 1.6).
constexpr double kSentSumWeight = 0.05;
// A rank with more shards than twice this is examined only at both ends of its list, the longest documents and the
// shortest, so that a sequence of very many tiny documents stays cheap.
constexpr std::size_t kExaminedEnd = 64;
constexpr std::int64_t kSwapsPerRank = 16;

std::int64_t nonlast_tokens(const Shard& shard) { return shard.is_last() ? 0 : shard.tokens; }

Shard piece(const Shard& shard, std::int64_t first, std::int64_t tokens) {
  return {shard.document, shard.prefix + first, tokens, shard.document_tokens};
}

// Calls `visit(index)` for the shards that are examined.
template <class Visit>
void for_examined(const std::vector<Shard>& shards, const Visit& visit) {
  const std::size_t count = shards.size();
  const std::size_t head = count <= 2 * kExaminedEnd ? count : kExaminedEnd;
  for (std::size_t i = 0; i < head; ++i) visit(i);
  for (std::size_t i = head == count ? count : count - kExaminedEnd; i < count; ++i) visit(i);
}

// (amount, rank) with the largest amount first and the lowest rank among equals.
struct Entry {
  std::int64_t amount = 0;
  std::size_t rank = 0;
  bool operator<(const Entry& other) const {
    return amount != other.amount ? amount < other.amount : rank > other.rank;
  }
};

}  // namespace

WholeDocPlan::WholeDocPlan(std::vector<WholeRank> ranks, double average_pairs, const FlashCpOptions& options)
    : ranks_(std::move(ranks)), average_pairs_(average_pairs), options_(options) {
  std::int64_t target = 0;
  for (const WholeRank& rank : ranks_) {
    nonlast_max_ = std::max(nonlast_max_, rank.nonlast);
    target = std::max(target, rank.target);
  }
  rows_per_rank_ = static_cast<double>(std::max<std::int64_t>(1, target));
  const auto node = static_cast<std::size_t>(options.ranks_per_node);
  ranks_per_node_ = node > 0 && ranks_.size() % node == 0 ? node : ranks_.size();
}

void WholeDocPlan::place_whole(std::span<const PlannedDocument> documents) {
  using Load = std::pair<std::int64_t, std::size_t>;
  using Least = std::priority_queue<Load, std::vector<Load>, std::greater<>>;
  const std::size_t nodes = ranks_.size() / ranks_per_node_;
  std::vector<Least> least(nodes);  // of each node's ranks
  Least least_node;
  for (std::size_t node = 0; node < nodes; ++node) {
    std::int64_t pairs = 0;
    for (std::size_t rank = node * ranks_per_node_; rank < (node + 1) * ranks_per_node_; ++rank) {
      least[node].emplace(ranks_[rank].pairs, rank);
      pairs += ranks_[rank].pairs;
    }
    least_node.emplace(pairs, node);
  }
  // Some ranks take more than the mean, and cuts leave a few shards more.
  for (WholeRank& rank : ranks_) rank.shards.reserve(rank.shards.size() + documents.size() / ranks_.size() * 2 + 8);
  for (const PlannedDocument& document : documents) {
    const auto [node_pairs, node] = least_node.top();
    least_node.pop();
    const std::size_t index = least[node].top().second;
    least[node].pop();
    WholeRank& rank = ranks_[index];
    rank.shards.push_back({document.document, 0, document.tokens, document.tokens});
    rank.tokens += document.tokens;
    rank.pairs += causal_pairs(document.tokens);
    least[node].emplace(rank.pairs, index);
    least_node.emplace(node_pairs + causal_pairs(document.tokens), node);
  }
}

void WholeDocPlan::equalise() {
  if (ranks_per_node_ < ranks_.size()) {
    for (std::size_t first = 0; first < ranks_.size(); first += ranks_per_node_) {
      equalise_among(first, first + ranks_per_node_);
    }
  }
  equalise_among(0, ranks_.size());
  for (const WholeRank& rank : ranks_) {
    LH_ASSERT(rank.tokens == rank.target, "{} tokens for a target of {}", rank.tokens, rank.target);
  }
}

// Until no rank of [begin, end) is above its target or none is below.
void WholeDocPlan::equalise_among(std::size_t begin, std::size_t end) {
  std::priority_queue<Entry> above;
  std::priority_queue<Entry> below;
  for (std::size_t rank = begin; rank < end; ++rank) {
    const std::int64_t surplus = ranks_[rank].tokens - ranks_[rank].target;
    if (surplus > 0) above.push({surplus, rank});
    if (surplus < 0) below.push({-surplus, rank});
  }
  while (!above.empty() && !below.empty()) {
    Entry most = above.top();
    Entry least = below.top();
    above.pop();
    below.pop();
    WholeRank& from = ranks_[most.rank];
    WholeRank& to = ranks_[least.rank];
    const std::int64_t tokens = std::min(most.amount, least.amount);
    const Move move =
        options_.cut_rule == FlashCutRule::kNaive ? naive_move(from, tokens) : cheapest_move(from, to, tokens);
    apply(from, to, move);
    most.amount -= move.tokens;
    least.amount -= move.tokens;
    if (most.amount > 0) above.push(most);
    if (least.amount > 0) below.push(least);
  }
}

WholeDocPlan::Move WholeDocPlan::cheapest_move(const WholeRank& from, const WholeRank& to, std::int64_t tokens) const {
  Move best;
  double best_cost = std::numeric_limits<double>::infinity();
  const auto consider = [&](const Move& move) {
    const double cost = move_cost(from, to, move);
    if (cost < best_cost) {
      best_cost = cost;
      best = move;
    }
  };
  for_examined(from.shards, [&](std::size_t index) {
    const std::int64_t length = from.shards[index].tokens;
    if (length <= tokens) {
      consider({index, 0, length});
    } else {
      consider({index, 0, tokens});
      consider({index, length - tokens, tokens});
    }
  });
  LH_ASSERT(best.tokens > 0, "no shard to move {} tokens from", tokens);
  return best;
}

WholeDocPlan::Move WholeDocPlan::naive_move(const WholeRank& from, std::int64_t tokens) const {
  LH_ASSERT(!from.shards.empty(), "no shard to move {} tokens from", tokens);
  const auto longest = std::max_element(from.shards.begin(), from.shards.end(),
                                        [](const Shard& a, const Shard& b) { return a.tokens < b.tokens; });
  const std::int64_t moved = std::min(tokens, longest->tokens);
  return {static_cast<std::size_t>(longest - from.shards.begin()), longest->tokens - moved, moved};
}

// flashcp.md 1.6: overload of the two ranks over the average, plus the growth of the largest and of all sent tokens.
// A piece that meets its neighbour on the new rank sends less than is counted here.
double WholeDocPlan::move_cost(const WholeRank& from, const WholeRank& to, const Move& move) const {
  const Shard& shard = from.shards[move.shard];
  const Shard moved = piece(shard, move.first, move.tokens);
  const Shard kept =
      move.first == 0 ? piece(shard, move.tokens, shard.tokens - move.tokens) : piece(shard, 0, move.first);
  const std::int64_t pairs = shard_pairs(moved.prefix, moved.tokens);
  const std::int64_t from_change = (kept.tokens > 0 ? nonlast_tokens(kept) : 0) - nonlast_tokens(shard);
  const std::int64_t to_change = nonlast_tokens(moved);
  const std::int64_t largest = std::max(from.nonlast + from_change, to.nonlast + to_change);
  const double overload = std::max(0.0, static_cast<double>(from.pairs - pairs) - average_pairs_) +
                          std::max(0.0, static_cast<double>(to.pairs + pairs) - average_pairs_);
  const double sent = static_cast<double>(std::max<std::int64_t>(0, largest - nonlast_max_)) +
                      kSentSumWeight * static_cast<double>(from_change + to_change);
  return options_.overload_weight * overload / average_pairs_ + sent / rows_per_rank_;
}

void WholeDocPlan::apply(WholeRank& from, WholeRank& to, const Move& move) {
  const std::int64_t before = from.nonlast;
  const Shard shard = from.shards[move.shard];
  const Shard moved = piece(shard, move.first, move.tokens);
  const std::int64_t pairs = shard_pairs(moved.prefix, moved.tokens);
  from.tokens -= moved.tokens;
  from.pairs -= pairs;
  from.nonlast -= nonlast_tokens(shard);
  if (move.tokens == shard.tokens) {
    from.shards[move.shard] = from.shards.back();
    from.shards.pop_back();
  } else {
    Shard& kept = from.shards[move.shard];
    kept = move.first == 0 ? piece(shard, move.tokens, shard.tokens - move.tokens) : piece(shard, 0, move.first);
    from.nonlast += nonlast_tokens(kept);
  }
  to.tokens += moved.tokens;
  to.pairs += pairs;
  add(to, moved);
  update_nonlast_max(before, from, to);
}

// Joins the shard to its neighbours on the rank: together they may hold the document's end, and then need not be sent.
void WholeDocPlan::add(WholeRank& rank, Shard shard) {
  if (shard.tokens < shard.document_tokens) {
    for (std::size_t i = 0; i < rank.shards.size();) {
      const Shard& other = rank.shards[i];
      const bool before = other.document == shard.document && other.prefix + other.tokens == shard.prefix;
      const bool after = other.document == shard.document && shard.prefix + shard.tokens == other.prefix;
      if (!before && !after) {
        ++i;
        continue;
      }
      rank.nonlast -= nonlast_tokens(other);
      shard.prefix = std::min(shard.prefix, other.prefix);
      shard.tokens += other.tokens;
      rank.shards[i] = rank.shards.back();
      rank.shards.pop_back();
    }
  }
  rank.nonlast += nonlast_tokens(shard);
  rank.shards.push_back(shard);
}

void WholeDocPlan::update_nonlast_max(std::int64_t before, const WholeRank& from, const WholeRank& to) {
  if (before == nonlast_max_ && from.nonlast < before) {
    nonlast_max_ = 0;
    for (const WholeRank& rank : ranks_) nonlast_max_ = std::max(nonlast_max_, rank.nonlast);
  }
  nonlast_max_ = std::max({nonlast_max_, from.nonlast, to.nonlast});
}

void WholeDocPlan::swap_to(double limit) {
  const std::int64_t most = kSwapsPerRank * static_cast<std::int64_t>(ranks_.size());
  for (std::int64_t i = 0; i < most; ++i) {
    if (static_cast<double>(pairs_max()) <= limit * average_pairs_ || !swap_once()) return;
  }
}

// One exchange of x tokens: the tail of A goes from the rank with most pairs to the one with fewest, the head of B
// comes back. It moves x (K - x) pairs with K = pA + sA - pB, so the wanted t asks for x = (K - sqrt(K^2 - 4t)) / 2
// (flashcp.md 1.6). Among exchanges that move at least t/2, the one that grows the largest sent buffer least; if none
// does, the one that moves most. False if no exchange moves anything.
bool WholeDocPlan::swap_once() {
  const auto fewer = [](const WholeRank& a, const WholeRank& b) { return a.pairs < b.pairs; };
  WholeRank& high = *std::max_element(ranks_.begin(), ranks_.end(), fewer);
  WholeRank& low = *std::min_element(ranks_.begin(), ranks_.end(), fewer);
  const double wanted =
      std::min(static_cast<double>(high.pairs) - average_pairs_, average_pairs_ - static_cast<double>(low.pairs));
  if (wanted <= 0) return false;
  struct Exchange {
    std::size_t a = 0, b = 0;
    std::int64_t tokens = 0, moved = 0, sent = 0;
  };
  Exchange best;
  bool done = false;  // nothing is better than an exchange that moves enough and grows no buffer
  const auto consider = [&](std::size_t a_index, std::size_t b_index) {
    if (done) return;
    const Shard& a = high.shards[a_index];
    const Shard& b = low.shards[b_index];
    if (a.document == b.document) return;
    const std::int64_t k = a.prefix + a.tokens - b.prefix;
    if (k <= 1) return;
    const double root = static_cast<double>(k) * static_cast<double>(k) - 4 * wanted;
    const double ideal = root <= 0 ? static_cast<double>(k) / 2 : (static_cast<double>(k) - std::sqrt(root)) / 2;
    const std::int64_t tokens =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(ideal + 0.5), 1, std::min(a.tokens, b.tokens));
    const std::int64_t moved = tokens * (k - tokens);
    if (moved <= 0 || moved >= high.pairs - low.pairs) return;
    const Shard a_kept = piece(a, 0, a.tokens - tokens), b_kept = piece(b, tokens, b.tokens - tokens);
    const Shard a_moved = piece(a, a.tokens - tokens, tokens), b_moved = piece(b, 0, tokens);
    const std::int64_t high_sent = high.nonlast - nonlast_tokens(a) + nonlast_tokens(a_kept) + nonlast_tokens(b_moved);
    const std::int64_t low_sent =
        low.nonlast - nonlast_tokens(b) + (b_kept.tokens > 0 ? nonlast_tokens(b_kept) : 0) + nonlast_tokens(a_moved);
    const Exchange exchange{a_index, b_index, tokens, moved, std::max({nonlast_max_, high_sent, low_sent})};
    const bool enough = static_cast<double>(moved) >= wanted / 2;
    const bool best_enough = static_cast<double>(best.moved) >= wanted / 2;
    const bool better = enough != best_enough ? enough : enough ? exchange.sent < best.sent : moved > best.moved;
    if (!better) return;
    best = exchange;
    done = enough && best.sent == nonlast_max_;
  };
  for_examined(high.shards, [&](std::size_t a) { for_examined(low.shards, [&](std::size_t b) { consider(a, b); }); });
  if (best.moved == 0) return false;
  const Shard tail = high.shards[best.a];
  apply(low, high, {best.b, 0, best.tokens});
  // B's head may have joined other shards of B on `high`, which moves indices; A itself is untouched.
  const auto holder = std::find_if(high.shards.begin(), high.shards.end(), [&](const Shard& shard) {
    return shard.document == tail.document && shard.prefix + shard.tokens == tail.prefix + tail.tokens;
  });
  LH_ASSERT(holder != high.shards.end(), "the tail of the exchange is gone");
  const auto index = static_cast<std::size_t>(holder - high.shards.begin());
  apply(high, low, {index, holder->tokens - best.tokens, best.tokens});
  return true;
}

std::vector<std::vector<Shard>> WholeDocPlan::shards() && {
  std::vector<std::vector<Shard>> shards;
  shards.reserve(ranks_.size());
  for (WholeRank& rank : ranks_) shards.push_back(std::move(rank.shards));
  return shards;
}

std::int64_t WholeDocPlan::pairs_max() const {
  std::int64_t most = 0;
  for (const WholeRank& rank : ranks_) most = std::max(most, rank.pairs);
  return most;
}

}  // namespace longhaul::flash
