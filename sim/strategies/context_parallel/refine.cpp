#include "sim/strategies/context_parallel/refine.h"

#include <algorithm>
#include <map>

namespace longhaul {
namespace {

constexpr std::int64_t kMostTrials = 4'000;
constexpr int kHalvings = 4;         // sizes tried: the shorter shard, its half, ...
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
  Refiner(CpPlan plan, std::span<const PlannedDocument> documents, double limit, const CpScore& score)
      : plan_(std::move(plan)), limit_(limit), score_(score), best_(score(plan_)) {
    for (std::size_t i = 0; i < documents.size(); ++i) position_[documents[i].document] = i;
    limit_ = std::max(limit_, cp_loads(plan_).imbalance);
  }

  CpPlan run() {
    while (trials_ < kMostTrials && improve()) continue;
    name_per_doc_documents();
    return std::move(plan_);
  }

 private:
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

  bool improve() {
    CpPlan best_plan;
    double best = best_ * (1 - kLeastGain);
    bool found = false;
    for (std::size_t u = 0; u < plan_.ranks.size(); ++u) {
      for (std::size_t v = u + 1; v < plan_.ranks.size(); ++v) {
        for (std::size_t a = 0; a < plan_.ranks[u].size(); ++a) {
          for (std::size_t b = 0; b < plan_.ranks[v].size(); ++b) {
            found |= try_pair(u, a, v, b, best_plan, best);
          }
        }
      }
    }
    if (!found) return false;
    plan_ = std::move(best_plan);
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
          if ((tail_y && tokens == y.tokens) || trials_ >= kMostTrials) continue;
          ++trials_;
          CpPlan plan = plan_;
          plan.ranks[u] = replaced(plan_.ranks[u], a, {rest(x, tokens, tail_x), cut(y, tokens, tail_y)});
          plan.ranks[v] = replaced(plan_.ranks[v], b, {rest(y, tokens, tail_y), cut(x, tokens, tail_x)});
          const double seconds = score_(plan);
          if (seconds >= best || cp_loads(plan).imbalance > limit_) continue;
          best = seconds;
          best_plan = std::move(plan);
          found = true;
        }
      }
    }
    return found;
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
  const CpScore& score_;
  double best_;
  std::int64_t trials_ = 0;
  std::map<DocumentId, std::size_t> position_;
};

}  // namespace

CpPlan refine_plan(CpPlan plan, std::span<const PlannedDocument> documents, double imbalance_limit,
                   const CpScore& score) {
  if (cp_loads(plan).shards > kMostRefinedShards || plan.ranks.size() < 2) return plan;
  return Refiner(std::move(plan), documents, imbalance_limit, score).run();
}

}  // namespace longhaul
