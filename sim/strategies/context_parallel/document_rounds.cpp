#include "sim/strategies/context_parallel/document_rounds.h"

#include <algorithm>
#include <set>

#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/refusal.h"

namespace longhaul {
namespace {

constexpr double kBucketSlack = 1.1;    // a bucket's work over its share
constexpr double kBalanceSlack = 0.05;  // of the most work of a group

using Documents = std::vector<PlannedDocument>;

// A group while its round is filled. Its ranks follow at the end.
struct OpenGroup {
  DocumentGroup group;
  double work = 0;  // of each of its ranks
};

class RoundPlanner {
 public:
  RoundPlanner(std::int64_t ranks, std::int64_t rank_tokens) : ranks_(ranks), rank_tokens_(rank_tokens) {}

  // Takes one round out of `left`, in the order in which they are dealt; at least one document goes.
  DocumentRound take_round(Documents& left) {
    groups_.clear();
    std::vector<Documents> buckets = buckets_of(left);
    std::vector<std::size_t> heads(buckets.size(), 0);
    fill(buckets, heads);
    left.clear();
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      left.insert(left.end(), buckets[i].begin() + static_cast<std::ptrdiff_t>(heads[i]), buckets[i].end());
    }
    put_off(left);
    spread();
    return lay_out();
  }

 private:
  std::int64_t wanted(const PlannedDocument& document) const {
    std::int64_t group = 1;
    while (group * rank_tokens_ < document.tokens && group < ranks_) group *= 2;
    return std::min(group, ranks_);
  }
  double work(const PlannedDocument& document) const {
    const auto tokens = static_cast<double>(document.tokens);
    return tokens * tokens / static_cast<double>(wanted(document));
  }
  std::int64_t free_ranks() const {
    std::int64_t free = ranks_;
    for (const OpenGroup& open : groups_) free -= open.group.ranks;
    return free;
  }
  double most() const {
    double most = 0;
    for (const OpenGroup& open : groups_) most = std::max(most, open.work);
    return most;
  }
  // Of all ranks: a free one has none.
  double least() const {
    if (free_ranks() > 0) return 0;
    double least = groups_.front().work;
    for (const OpenGroup& open : groups_) least = std::min(least, open.work);
    return least;
  }
  bool balanced() const { return most() - least() <= kBalanceSlack * most(); }

  std::vector<Documents> buckets_of(const Documents& documents) const {
    std::set<std::int64_t> sizes;
    double total = 0;
    for (const PlannedDocument& document : documents) {
      sizes.insert(wanted(document));
      total += work(document);
    }
    const double share = total / static_cast<double>(sizes.size());
    std::vector<Documents> buckets;
    Documents bucket;
    double sum = 0;
    // The code takes one off both its count of buckets to come and that count less the buckets made.
    auto to_come = static_cast<std::int64_t>(sizes.size());
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const auto rest = static_cast<std::int64_t>(documents.size() - i);
      const bool full = sum + work(documents[i]) > share * kBucketSlack;
      if (!bucket.empty() && (full || rest <= to_come - static_cast<std::int64_t>(buckets.size()))) {
        buckets.push_back(std::move(bucket));
        bucket.clear();
        sum = 0;
        --to_come;
      }
      bucket.push_back(documents[i]);
      sum += work(documents[i]);
    }
    buckets.push_back(std::move(bucket));
    return buckets;
  }

  // The group that takes the document, a new one where ranks are free; null where it has no place.
  OpenGroup* place_for(const PlannedDocument& document) {
    const std::int64_t size = wanted(document);
    if (free_ranks() >= size) {
      groups_.push_back({{0, size, {}}, 0});
      return &groups_.back();
    }
    OpenGroup* best = nullptr;
    for (OpenGroup& open : groups_) {
      if (open.group.ranks == size && (best == nullptr || open.work < best->work)) best = &open;
    }
    return best;
  }

  void fill(const std::vector<Documents>& buckets, std::vector<std::size_t>& heads) {
    std::int64_t first_size = 0;
    bool smaller = false;  // than the first one
    while (true) {
      const PlannedDocument* next = nullptr;
      OpenGroup* open = nullptr;
      bool left = false;
      for (std::size_t i = 0; i < buckets.size() && open == nullptr; ++i) {
        if (heads[i] == buckets[i].size()) continue;
        next = &buckets[i][heads[i]];
        open = place_for(*next);
        if (open != nullptr) ++heads[i];
      }
      if (open == nullptr) return;
      open->group.documents.push_back(*next);
      open->work += work(*next);
      if (first_size == 0) first_size = wanted(*next);
      smaller = smaller || wanted(*next) < first_size;
      for (std::size_t i = 0; i < buckets.size(); ++i) left = left || heads[i] < buckets[i].size();
      if (smaller && left && balanced()) return;
    }
  }

  void put_off(Documents& left) {
    while (free_ranks() == 0 && !balanced()) {
      const auto heaviest = std::max_element(groups_.begin(), groups_.end(),
                                             [](const OpenGroup& a, const OpenGroup& b) { return a.work < b.work; });
      if (heaviest->group.documents.size() == 1) return;
      const double before = most() - least(), held = heaviest->work;
      const PlannedDocument last = heaviest->group.documents.back();
      heaviest->work -= work(last);
      if (most() - least() >= before) {
        heaviest->work = held;
        return;
      }
      heaviest->group.documents.pop_back();
      left.push_back(last);
    }
  }

  void spread() {
    while (true) {
      const auto smallest =
          std::min_element(groups_.begin(), groups_.end(),
                           [](const OpenGroup& a, const OpenGroup& b) { return a.group.ranks < b.group.ranks; });
      const std::int64_t doubled = std::min(2 * smallest->group.ranks, ranks_);
      const std::int64_t more = doubled - smallest->group.ranks;
      if (more == 0 || more > free_ranks()) return;
      smallest->group.ranks = doubled;
    }
  }

  DocumentRound lay_out() const {
    DocumentRound round;
    for (const OpenGroup& open : groups_) round.push_back(open.group);
    std::stable_sort(round.begin(), round.end(),
                     [](const DocumentGroup& a, const DocumentGroup& b) { return a.ranks > b.ranks; });
    std::int64_t first = 0;
    for (DocumentGroup& group : round) {
      group.first = first;
      first += group.ranks;
    }
    return round;
  }

  std::int64_t ranks_;
  std::int64_t rank_tokens_;
  std::vector<OpenGroup> groups_;  // as they were opened
};

}  // namespace

tl::expected<std::vector<DocumentRound>, std::string> plan_document_rounds(std::span<const PlannedDocument> documents,
                                                                           std::int64_t ranks,
                                                                           std::int64_t rank_tokens) {
  LH_ASSERT(rank_tokens >= 1, "{} tokens a rank", rank_tokens);
  if (auto reason = cp_refusal(documents, ranks)) return tl::unexpected(*reason);
  Documents left(documents.begin(), documents.end());
  std::stable_sort(left.begin(), left.end(),
                   [](const PlannedDocument& a, const PlannedDocument& b) { return a.tokens > b.tokens; });
  RoundPlanner planner(ranks, rank_tokens);
  std::vector<DocumentRound> rounds;
  while (!left.empty()) rounds.push_back(planner.take_round(left));
  return rounds;
}

}  // namespace longhaul
