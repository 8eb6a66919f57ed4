#include "sim/strategies/context_parallel/refine.h"

#include <algorithm>
#include <map>

namespace longhaul {
namespace {

constexpr std::int64_t kMostLooks = 200'000;  // exchanges looked at
// Weights of evenness beside the score: of a score alone, exchanges between ranks that are equally slow gain nothing.
constexpr double kPairsWeight = 0.02, kSentWeight = 0.02;
constexpr double kOverWeight = 2;    // of imbalance above the limit
constexpr int kHalvings = 8;         // sizes tried: the shorter shard, its half, ...
constexpr double kLeastGain = 1e-4;  // of the score; smaller gains are not worth a longer list of shards

// A head (or tail) of `tokens` of a shard; what is left of it.
Shard cut(const Shard& shard, std::int64_t tokens, bool tail) {
  Shard piece = shard;
  piece.prefix += tail ? shard.tokens - tokens : 0;
  piece.tokens = tokens;
  return piece;
}
Shard rest(const Shard& shard, std::int64_t tokens, bool tail) {
  Shard left = shard;
  left.prefix += tail ? 0 : tokens;
  left.tokens -= tokens;
  return left;
}

class Refiner {
 public:
  Refiner(CpPlan plan, std::span<const PlannedDocument> documents, double limit, std::int64_t most_trials,
          const CpScore& score)
      : plan_(std::move(plan)), limit_(limit), most_trials_(most_trials), score_(score) {
    for (std::size_t i = 0; i < documents.size(); ++i) position_[documents[i].document] = i;
    loads_ = cp_loads(plan_);
    fastest_ = plan_;
    least_seconds_ = score(plan_);
    least_over_ = over(loads_);
    best_ = objective(plan_, loads_);
  }

  CpPlan run() {
    while (trials_ < most_trials_ && looks_ < kMostLooks && improve()) continue;
    plan_ = std::move(fastest_);
    name_per_doc_documents();
    return std::move(plan_);
  }

 private:
  double over(const CpLoads& loads) const { return std::max(0.0, loads.imbalance - limit_); }

  // The score, and beside it how even pairs are, how much is sent in all, and what the imbalance is over the limit.
  double objective(const CpPlan& plan, const CpLoads& loads) {
    const double seconds = score_(plan);
    if (over(loads) < least_over_ || (over(loads) == least_over_ && seconds < least_seconds_)) {
      least_over_ = over(loads);
      least_seconds_ = seconds;
      fastest_ = plan;
    }
    const double mean = static_cast<double>(loads.pairs) / static_cast<double>(plan.ranks.size());
    double squares = 0, sent = 0;
    for (const CpRankLoad& load : loads.ranks) {
      const double share = mean == 0 ? 0 : static_cast<double>(load.pairs) / mean;
      squares += share * share / static_cast<double>(plan.ranks.size());
      sent += static_cast<double>(load.nonlast) / static_cast<double>(loads.tokens);
    }
    return seconds * (1 + kPairsWeight * squares + kSentWeight * sent + kOverWeight * over(loads));
  }

  // The rank's shards without `index` but with `pieces`, in packing order, joined where they adjoin; padding last.
  std::vector<Shard> replaced(const std::vector<Shard>& shards, std::size_t index,
                              std::initializer_list<Shard> pieces) const {
    std::vector<Shard> kept;
    std::int64_t padding = 0;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      if (shards[i].is_padding())
        padding += shards[i].tokens;
      else if (i != index)
        kept.push_back(shards[i]);
    }
    for (const Shard& piece : pieces) {
      if (piece.tokens > 0) kept.push_back(piece);
    }
    std::sort(kept.begin(), kept.end(), [&](const Shard& a, const Shard& b) {
      const std::size_t x = position_.at(a.document), y = position_.at(b.document);
      return x != y ? x < y : a.prefix < b.prefix;
    });
    std::vector<Shard> joined;
    for (const Shard& shard : kept) append_shard(joined, shard);
    append_shard(joined, padding_shard(padding));
    return joined;
  }

  // One sweep over the pairs of ranks; each takes its best exchange at once, so that a sweep can make many.
  bool improve() {
    bool any = false;
    for (std::size_t u = 0; u < plan_.ranks.size(); ++u) {
      for (std::size_t v = u + 1; v < plan_.ranks.size(); ++v) any |= exchange(u, v);
    }
    return any;
  }

  bool exchange(std::size_t u, std::size_t v) {
    CpPlan best_plan;
    double best = best_ * (1 - kLeastGain);
    bool found = false;
    for (std::size_t a = 0; a < plan_.ranks[u].size(); ++a) {
      for (std::size_t b = 0; b < plan_.ranks[v].size(); ++b) found |= try_pair(u, a, v, b, best_plan, best);
    }
    if (!found) return false;
    plan_ = std::move(best_plan);
    loads_ = cp_loads(plan_);
    best_ = best;
    return true;
  }

  bool try_pair(std::size_t u, std::size_t a, std::size_t v, std::size_t b, CpPlan& best_plan, double& best) {
    const Shard x = plan_.ranks[u][a], y = plan_.ranks[v][b];
    if (x.is_padding() || y.is_padding()) return false;
    bool found = false;
    std::int64_t tokens = std::min(x.tokens, y.tokens);
    for (int halving = 0; halving < kHalvings && tokens > 0; ++halving, tokens /= 2) {
      for (const bool tail_x : {false, true}) {
        if (tail_x && tokens == x.tokens) continue;
        for (const bool tail_y : {false, true}) {
          if ((tail_y && tokens == y.tokens) || trials_ >= most_trials_ || ++looks_ > kMostLooks) continue;
          std::vector<Shard> at_u = replaced(plan_.ranks[u], a, {rest(x, tokens, tail_x), cut(y, tokens, tail_y)});
          std::vector<Shard> at_v = replaced(plan_.ranks[v], b, {rest(y, tokens, tail_y), cut(x, tokens, tail_x)});
          const CpRankLoad load_u = cp_rank_load(at_u), load_v = cp_rank_load(at_v);
          if (!promises(loads_.ranks[u], loads_.ranks[v], load_u, load_v)) continue;
          ++trials_;
          CpPlan plan = plan_;
          plan.ranks[u] = std::move(at_u);
          plan.ranks[v] = std::move(at_v);
          const CpLoads loads = cp_loads(plan);
          if (over(loads) > over(loads_)) continue;
          const double value = objective(plan, loads);
          if (value >= best) continue;
          best = value;
          best_plan = std::move(plan);
          found = true;
        }
      }
    }
    return found;
  }

  // Whether the exchange lowers the pairs of the fuller rank or the sent tokens of the one that sends more: a cheap
  // look before the score.
  static bool promises(const CpRankLoad& u, const CpRankLoad& v, const CpRankLoad& new_u, const CpRankLoad& new_v) {
    return std::max(new_u.pairs, new_v.pairs) < std::max(u.pairs, v.pairs) ||
           std::max(new_u.nonlast, new_v.nonlast) < std::max(u.nonlast, v.nonlast);
  }

  // Documents that every rank holds a part of.
  void name_per_doc_documents() {
    std::map<DocumentId, std::size_t> holders;
    for (const std::vector<Shard>& shards : plan_.ranks) {
      std::map<DocumentId, bool> here;
      for (const Shard& shard : shards) {
        if (!shard.is_padding()) here[shard.document] = true;
      }
      for (const auto& [document, held] : here) ++holders[document];
    }
    std::erase_if(plan_.per_doc_documents, [&](DocumentId id) { return holders[id] < plan_.ranks.size(); });
  }

  CpPlan plan_;
  double limit_;
  std::int64_t most_trials_;
  const CpScore& score_;
  CpLoads loads_;
  double best_ = 0;
  CpPlan fastest_;  // of all seen: those least over the limit first
  double least_seconds_ = 0, least_over_ = 0;
  std::int64_t trials_ = 0, looks_ = 0;
  std::map<DocumentId, std::size_t> position_;
};

}  // namespace

CpPlan refine_plan(CpPlan plan, std::span<const PlannedDocument> documents, double imbalance_limit,
                   std::int64_t most_trials, const CpScore& score) {
  if (cp_loads(plan).shards > kMostRefinedShards || plan.ranks.size() < 2) return plan;
  return Refiner(std::move(plan), documents, imbalance_limit, most_trials, score).run();
}

}  // namespace longhaul
