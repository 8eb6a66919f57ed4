#include "sim/strategies/context_parallel/flashcp.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/refine.h"
#include "sim/strategies/context_parallel/refusal.h"
#include "sim/strategies/context_parallel/whole_doc.h"

namespace longhaul {
namespace {

using flash::RankBase;
using flash::WholeDocPlan;
using flash::WholeRank;

// Up to here the Per-Doc set grows one document at a time, then by a 64th.
constexpr std::int64_t kSingleSteps = 256;
constexpr std::int64_t kStepDivisor = 64;
// Bounds of the candidates that a scorer sees: documents x ranks of a large problem, shards of the Per-Doc set.
constexpr std::int64_t kLargeProblem = 1 << 17;
constexpr std::int64_t kMostPerDocShards = 1 << 16;
constexpr int kRefinedStarts = 3;
constexpr std::int64_t kFewerToSwap = 3;  // Per-Doc sets smaller than Algorithm 1's that exchanges are tried with

// One sequence and everything that does not depend on the Per-Doc set. Documents go by their place in packing order
// until the plan is done.
struct Problem {
  std::vector<PlannedDocument> longest_first;
  std::vector<DocumentId> ids;  // by place
  std::int64_t ranks = 0;
  std::int64_t rows = 0;     // ceil(C/N)
  std::int64_t padding = 0;  // rows in all
  std::int64_t pairs = 0;    // of all documents
  FlashCpOptions options;
};

// Where a Per-Doc document is cut: over ranks [first, first + ranks), the chunk cursor at `cursor`.
struct PerDocPlace {
  std::int64_t first = 0;
  std::int64_t ranks = 0;
  std::int64_t cursor = 0;
};

// The Per-Doc set: the first `count` of `longest_first`, and what each rank holds of them.
struct PerDocSet {
  std::int64_t count = 0;
  std::int64_t cursor = 0;
  std::int64_t pairs = 0;
  std::vector<PerDocPlace> places;
  std::vector<RankBase> ranks;
};

Problem make_problem(std::span<const PlannedDocument> documents, std::int64_t ranks, const FlashCpOptions& options) {
  Problem problem;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    problem.longest_first.push_back({static_cast<DocumentId>(i), documents[i].tokens});
    problem.ids.push_back(documents[i].document);
    tokens += documents[i].tokens;
    problem.pairs += causal_pairs(documents[i].tokens);
  }
  std::stable_sort(problem.longest_first.begin(), problem.longest_first.end(),
                   [](const PlannedDocument& a, const PlannedDocument& b) { return a.tokens > b.tokens; });
  std::vector<DocumentId> sorted = problem.ids;
  std::sort(sorted.begin(), sorted.end());
  LH_ASSERT(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "a document stands twice in a sequence");
  problem.ranks = ranks;
  problem.rows = ceil_div(tokens, ranks);
  problem.padding = problem.rows * ranks - tokens;
  problem.options = options;
  return problem;
}

// Calls `visit(rank, shard)` for the zigzag chunks of a Per-Doc document, two a rank.
template <class Visit>
void for_chunks(const PlannedDocument& document, const PerDocPlace& place, const Visit& visit) {
  const std::int64_t chunks = 2 * place.ranks;
  std::int64_t prefix = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t tokens = chunk_tokens(document.tokens, chunks, place.cursor, chunk);
    if (tokens == 0) continue;
    const std::int64_t rank = place.first + std::min(chunk, chunks - 1 - chunk);
    visit(static_cast<std::size_t>(rank), Shard{document.document, prefix, tokens, document.tokens});
    prefix += tokens;
  }
}

// The node with most rows left on its fullest rank, if an even cut of the document fits there; all ranks otherwise.
PerDocPlace place_per_doc(const PerDocSet& set, const Problem& problem, const PlannedDocument& document) {
  const std::int64_t node = problem.options.ranks_per_node;
  const PerDocPlace all{0, problem.ranks, set.cursor};
  if (node == 0 || problem.ranks <= node || problem.ranks % node != 0) return all;
  std::int64_t best = -1, most = 0;
  for (std::int64_t first = 0; first < problem.ranks; first += node) {
    std::int64_t left = problem.rows;
    for (std::int64_t rank = first; rank < first + node; ++rank) {
      left = std::min(left, problem.rows - set.ranks[static_cast<std::size_t>(rank)].tokens);
    }
    if (left > most) {
      best = first;
      most = left;
    }
  }
  // Two chunks of one token more than the even share, and a row for padding.
  if (best < 0 || document.tokens / node + 3 > most) return all;
  return {best, node, 0};
}

// False if a rank is asked for more rows than it has: cuts inside nodes leave ranks unequal, so that a later document
// cut over all of them may not fit.
bool grow(PerDocSet& set, const Problem& problem, std::int64_t count) {
  set.ranks.resize(static_cast<std::size_t>(problem.ranks));
  for (; set.count < count; ++set.count) {
    const PlannedDocument& document = problem.longest_first[static_cast<std::size_t>(set.count)];
    set.places.push_back(place_per_doc(set, problem, document));
    for_chunks(document, set.places.back(), [&](std::size_t rank, const Shard& shard) {
      RankBase& base = set.ranks[rank];
      base.tokens += shard.tokens;
      base.pairs += shard_pairs(shard.prefix, shard.tokens);
      if (!shard.is_last()) base.nonlast += shard.tokens;
    });
    set.pairs += causal_pairs(document.tokens);
    if (set.places.back().ranks == problem.ranks) {
      set.cursor = (set.cursor + document.tokens) % (2 * problem.ranks);
    }
  }
  std::int64_t not_full = 0;  // ranks that can take a row of padding
  for (const RankBase& base : set.ranks) {
    if (base.tokens > problem.rows) return false;
    not_full += base.tokens < problem.rows ? 1 : 0;
  }
  return not_full >= problem.padding;
}

// Padding rows of each rank: one each to the ranks with most rows left by the Per-Doc set, the lowest of equals. Rows
// left differ by at most one between ranks, so no rank is asked for more than it has.
std::vector<std::int64_t> padding_rows(const Problem& problem, const PerDocSet& set) {
  std::vector<std::int64_t> padding(static_cast<std::size_t>(problem.ranks), 0);
  std::vector<std::size_t> order(padding.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return set.ranks[a].tokens < set.ranks[b].tokens; });
  for (std::int64_t i = 0; i < problem.padding; ++i) padding[order[static_cast<std::size_t>(i)]] = 1;
  return padding;
}

WholeDocPlan make_whole(const Problem& problem, const PerDocSet& set, const std::vector<std::int64_t>& padding) {
  const bool counted = problem.options.count_per_doc_pairs;
  std::vector<WholeRank> ranks(static_cast<std::size_t>(problem.ranks));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].target = problem.rows - set.ranks[i].tokens - padding[i];
    ranks[i].pairs = counted ? set.ranks[i].pairs : 0;
    ranks[i].nonlast = set.ranks[i].nonlast;
    LH_ASSERT(ranks[i].target >= 0, "rank {} holds {} rows too many", i, -ranks[i].target);
  }
  const std::int64_t pairs = counted ? problem.pairs : problem.pairs - set.pairs;
  const double average = static_cast<double>(pairs) / static_cast<double>(problem.ranks);
  WholeDocPlan whole(std::move(ranks), average, problem.options);
  whole.place_whole(std::span(problem.longest_first).subspan(static_cast<std::size_t>(set.count)));
  whole.equalise();
  if (problem.options.cut_rule == FlashCutRule::kEqualiseSwap) whole.swap_to(problem.options.imbalance_limit);
  return whole;
}

// `cur` of Algorithm 1. Without Per-Doc pairs and without whole documents there is nothing to balance.
double imbalance(const Problem& problem, const PerDocSet& set, const WholeDocPlan& whole) {
  const std::int64_t pairs = problem.options.count_per_doc_pairs ? problem.pairs : problem.pairs - set.pairs;
  if (pairs == 0) return 1;
  return static_cast<double>(whole.pairs_max()) * static_cast<double>(problem.ranks) / static_cast<double>(pairs);
}

CpPlan to_plan(const Problem& problem, const PerDocSet& set, WholeDocPlan whole,
               const std::vector<std::int64_t>& padding) {
  std::vector<std::vector<Shard>> held = std::move(whole).shards();
  CpPlan plan;
  for (std::size_t i = 0; i < set.places.size(); ++i) {
    const PlannedDocument& document = problem.longest_first[i];
    for_chunks(document, set.places[i], [&](std::size_t rank, const Shard& shard) { held[rank].push_back(shard); });
    plan.per_doc_documents.push_back(problem.ids[static_cast<std::size_t>(document.document)]);
  }
  plan.padded_tokens_per_rank = problem.rows;
  plan.ranks.resize(held.size());
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    std::sort(held[rank].begin(), held[rank].end(), [&](const Shard& a, const Shard& b) {
      return a.document != b.document ? a.document < b.document : a.prefix < b.prefix;
    });
    plan.ranks[rank].reserve(held[rank].size() + 1);
    for (Shard& shard : held[rank]) {
      shard.document = problem.ids[static_cast<std::size_t>(shard.document)];
      append_shard(plan.ranks[rank], shard);
    }
    append_shard(plan.ranks[rank], padding_shard(padding[rank]));
  }
  return plan;
}

std::optional<CpPlan> try_build(const Problem& problem, std::int64_t per_doc) {
  PerDocSet set;
  if (!grow(set, problem, per_doc)) return std::nullopt;
  const std::vector<std::int64_t> padding = padding_rows(problem, set);
  return to_plan(problem, set, make_whole(problem, set, padding), padding);
}

// The plan, or where no cut inside a node leaves room for it, one that cuts over all ranks.
CpPlan or_anywhere(std::optional<CpPlan> plan, const Problem& problem, std::int64_t per_doc) {
  if (plan) return std::move(*plan);
  Problem anywhere = problem;
  anywhere.options.ranks_per_node = 0;
  return *try_build(anywhere, per_doc);
}

struct AlgorithmOne {
  std::int64_t count = 0;
  CpPlan plan;
};

// Algorithm 1: the first Per-Doc count whose imbalance is within the limit; if none is, the count of least imbalance.
AlgorithmOne search(const Problem& problem) {
  const auto documents = static_cast<std::int64_t>(problem.longest_first.size());
  PerDocSet set;
  std::int64_t best = 0;
  double best_imbalance = 0;
  for (std::int64_t count = 0;;) {
    if (grow(set, problem, count)) {
      const std::vector<std::int64_t> padding = padding_rows(problem, set);
      WholeDocPlan whole = make_whole(problem, set, padding);
      const double current = imbalance(problem, set, whole);
      if (current <= problem.options.imbalance_limit) return {count, to_plan(problem, set, std::move(whole), padding)};
      if (count == 0 || current < best_imbalance) {
        best = count;
        best_imbalance = current;
      }
    }
    if (count == documents) return {best, *try_build(problem, best)};
    count = std::min(documents, count + (count < kSingleSteps ? 1 : count / kStepDivisor));
  }
}

std::optional<std::string> refusal(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                   const FlashCpOptions& options) {
  LH_ASSERT(options.imbalance_limit >= 1, "imbalance limit {} is below 1", options.imbalance_limit);
  return cp_refusal(documents, ranks);
}

}  // namespace

tl::expected<CpPlan, std::string> plan_flashcp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                               const FlashCpOptions& options) {
  if (auto reason = refusal(documents, ranks, options)) return tl::unexpected(*reason);
  const Problem problem = make_problem(documents, ranks, options);
  return search(problem).plan;
}

tl::expected<CpPlan, std::string> plan_flashcp_with(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                    std::int64_t per_doc, const FlashCpOptions& options) {
  if (auto reason = refusal(documents, ranks, options)) return tl::unexpected(*reason);
  LH_ASSERT(per_doc >= 0 && per_doc <= static_cast<std::int64_t>(documents.size()), "{} Per-Doc documents of {}",
            per_doc, documents.size());
  const Problem problem = make_problem(documents, ranks, options);
  return or_anywhere(try_build(problem, per_doc), problem, per_doc);
}

namespace {

// A sequence of very many documents on many ranks: fewer candidates, so that planning stays within milliseconds.
bool is_large(const Problem& problem) {
  return static_cast<std::int64_t>(problem.longest_first.size()) * problem.ranks > kLargeProblem;
}

// Per-Doc counts that are tried: `first`, Algorithm 1's, then 0, 1, 2, 3, 4, 6, 8, 12, ... and all; for large problems
// 0, 1, 4, 16, ... None that cuts documents into more than kMostPerDocShards, but for Algorithm 1's.
std::vector<std::int64_t> candidate_counts(const Problem& problem, std::int64_t first) {
  const auto all = static_cast<std::int64_t>(problem.longest_first.size());
  const bool large = is_large(problem);
  const std::int64_t most_shards = large ? std::min(all, kMostPerDocShards) : kMostPerDocShards;
  std::vector<std::int64_t> counts = {first};
  const auto offer = [&](std::int64_t count) {
    if (count > all || 2 * count * problem.ranks > most_shards) return;
    if (std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
  };
  offer(0);
  for (std::int64_t power = 1; power <= all; power *= large ? 8 : 2) {
    offer(power);
    if (power > 1 && !large) offer(power + power / 2);
  }
  offer(all);
  return counts;
}

// Index of the least score among those that `allowed` marks; the first of equals.
std::size_t least(const std::vector<CpPlan>& plans, const std::vector<bool>& allowed, const CpScore& score) {
  std::size_t best = plans.size();
  double best_score = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!allowed[i]) continue;
    const double value = score(plans[i]);
    if (best == plans.size() || value < best_score) {
      best = i;
      best_score = value;
    }
  }
  return best;
}

}  // namespace

tl::expected<std::vector<CpPlan>, std::string> flashcp_candidates(std::span<const PlannedDocument> documents,
                                                                  std::int64_t ranks, const FlashCpOptions& options) {
  if (auto reason = refusal(documents, ranks, options)) return tl::unexpected(*reason);
  const Problem problem = make_problem(documents, ranks, options);
  AlgorithmOne one = search(problem);
  std::vector<CpPlan> plans;
  for (const std::int64_t count : candidate_counts(problem, one.count)) {
    std::optional<CpPlan> plan = count == one.count ? std::move(one.plan) : try_build(problem, count);
    if (plan) plans.push_back(std::move(*plan));
  }
  return plans;
}

tl::expected<CpPlan, std::string> plan_flashcp_scored(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                      const FlashCpOptions& options, const CpScore& score) {
  auto candidates = flashcp_candidates(documents, ranks, options);
  if (!candidates) return tl::unexpected(candidates.error());
  return std::move((*candidates)[least(*candidates, std::vector<bool>(candidates->size(), true), score)]);
}

namespace {

// Plans to choose from, and what a choice looks at.
struct Candidates {
  std::vector<CpPlan> plans;
  std::vector<double> imbalances;
  std::vector<std::int64_t> shards, sent;
  std::vector<std::size_t> algorithm_one;  // by rule; none for a rule that makes the plan of an earlier one
  std::int64_t most_sent = std::numeric_limits<std::int64_t>::max();  // by a rank: of the naive rule, where it matters

  void add(CpPlan plan) {
    const CpLoads loads = cp_loads(plan);
    imbalances.push_back(loads.imbalance);
    shards.push_back(loads.shards);
    sent.push_back(loads.nonlast_max);
    plans.push_back(std::move(plan));
  }
};

// Per-Doc counts of a rule. Exchanges balance sets that are a few documents short of what equalising alone needs, and
// the naive rule's set may save more than any other.
std::vector<std::int64_t> rule_counts(const Problem& problem, std::int64_t first,
                                      std::span<const std::int64_t> beside) {
  std::vector<std::int64_t> counts = candidate_counts(problem, first);
  for (const std::int64_t count : beside) {
    if (count >= 0 && std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

Candidates candidates_by_rules(std::span<const PlannedDocument> documents, std::int64_t ranks,
                               const FlashCpOptions& options, const FlashCpSearch& search_options) {
  Candidates found;
  std::vector<std::int64_t> beside;
  Problem problem = make_problem(documents, ranks, options);
  std::optional<CpPlan> naive_plan;
  if (search_options.save_as_naive && search_options.limit_binds && !is_large(problem)) {
    problem.options.cut_rule = FlashCutRule::kNaive;
    AlgorithmOne naive = search(problem);
    beside.push_back(naive.count);
    naive_plan = std::move(naive.plan);
    found.most_sent = cp_loads(*naive_plan).nonlast_max;
  }
  std::vector<std::int64_t> balanced;  // counts at which equalising alone meets the limit: there is nothing to swap
  for (std::size_t i = 0; i < search_options.rules.size(); ++i) {
    const FlashCutRule rule = search_options.rules[i];
    problem.options.cut_rule = rule;
    AlgorithmOne one = search(problem);
    std::vector<std::int64_t> counts = rule_counts(problem, one.count, beside);
    if (i > 0 && is_large(problem)) counts.resize(1);
    for (std::size_t c = 0; c < counts.size(); ++c) {
      const bool known = std::find(balanced.begin(), balanced.end(), counts[c]) != balanced.end();
      if (rule == FlashCutRule::kEqualiseSwap && known) continue;
      std::optional<CpPlan> plan = c == 0 ? std::move(one.plan) : try_build(problem, counts[c]);
      if (!plan) continue;
      if (c == 0) found.algorithm_one.push_back(found.plans.size());
      found.add(std::move(*plan));
      const bool met = options.count_per_doc_pairs && found.imbalances.back() <= options.imbalance_limit;
      if (rule == FlashCutRule::kEqualise && met) balanced.push_back(counts[c]);
    }
    if (i == 0 && !is_large(problem)) {
      for (std::int64_t fewer = 1; fewer <= kFewerToSwap; ++fewer) beside.push_back(counts.front() - fewer);
    }
  }
  if (naive_plan) found.add(std::move(*naive_plan));
  return found;
}

// The best of those allowed; and the best few with few shards, refined by exchanges within `limit` (one that is over it
// must come down to it): the least score need not lead to the least refined one.
CpPlan best_of(const Candidates& of, const std::vector<bool>& allowed, std::span<const PlannedDocument> documents,
               double limit, std::int64_t trials, const CpScore& score) {
  std::size_t index = least(of.plans, allowed, score);
  CpPlan best = of.plans[index];
  if (*std::min_element(of.shards.begin(), of.shards.end()) > kMostRefinedShards) return best;
  double best_score = score(best);
  for (const bool within : {true, false}) {
    std::vector<bool> starts;
    for (std::size_t i = 0; i < of.plans.size(); ++i) {
      starts.push_back(allowed[i] == within && of.shards[i] <= kMostRefinedShards);
    }
    for (int start = 0; start < kRefinedStarts; ++start) {
      index = least(of.plans, starts, score);
      if (index == of.plans.size()) break;
      starts[index] = false;
      CpPlan plan = refine_plan(of.plans[index], documents, limit, trials, score);
      const double value = score(plan);
      if (value >= best_score || cp_loads(plan).imbalance > limit) continue;
      best_score = value;
      best = std::move(plan);
    }
  }
  return best;
}

}  // namespace

tl::expected<CpPlan, std::string> plan_flashcp_by_time(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                       const FlashCpOptions& options, const FlashCpSearch& search,
                                                       const CpScore& score) {
  if (auto reason = refusal(documents, ranks, options)) return tl::unexpected(*reason);
  const Candidates of = candidates_by_rules(documents, ranks, options, search);
  const double reached =
      std::max(options.imbalance_limit, *std::min_element(of.imbalances.begin(), of.imbalances.end()));
  const double limit = search.limit_binds ? reached : std::numeric_limits<double>::infinity();
  std::vector<bool> allowed;
  for (const double imbalance : of.imbalances) allowed.push_back(imbalance <= limit);
  CpPlan best = best_of(of, allowed, documents, limit, search.refine_trials, score);
  if (cp_loads(best).nonlast_max <= of.most_sent) return best;
  for (std::size_t i = 0; i < of.plans.size(); ++i) allowed[i] = allowed[i] && of.sent[i] <= of.most_sent;
  if (std::find(allowed.begin(), allowed.end(), true) == allowed.end()) return best;
  const CpScore saving = [&](const CpPlan& plan) {
    return cp_loads(plan).nonlast_max <= of.most_sent ? score(plan) : std::numeric_limits<double>::infinity();
  };
  CpPlan second = best_of(of, allowed, documents, limit, search.refine_trials, saving);
  const double seconds = score(second);
  const bool slower = std::any_of(of.algorithm_one.begin(), of.algorithm_one.end(),
                                  [&](std::size_t index) { return score(of.plans[index]) < seconds; });
  return slower ? best : second;
}

std::optional<TwoDocumentExchange> two_document_exchange(const TwoDocumentState& state) {
  const std::int64_t k = state.target_tokens - state.rank_tokens + state.a - state.b;
  // keep_b in [low, high], so that keep_a = keep_b + k lies in [0, a] too.
  const std::int64_t low = std::max<std::int64_t>(0, -k);
  const std::int64_t high = std::min(state.b, state.a - k);
  if (k == 0 || low > high) return std::nullopt;
  const double q = state.target_pairs - static_cast<double>(state.rank_pairs) +
                   static_cast<double>(causal_pairs(state.a)) - static_cast<double>(causal_pairs(state.b));
  const auto kd = static_cast<double>(k);
  const double ideal = (2 * q - kd * kd - kd) / (2 * kd);
  const double clamped = std::clamp(ideal, static_cast<double>(low), static_cast<double>(high));
  const auto keep_b = static_cast<std::int64_t>(std::floor(clamped + 0.5));
  return TwoDocumentExchange{keep_b + k, keep_b};
}

}  // namespace longhaul
