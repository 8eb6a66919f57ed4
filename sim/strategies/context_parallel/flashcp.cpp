#include "sim/strategies/context_parallel/flashcp.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "sim/core/invariant.h"
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

// One sequence and everything that does not depend on the Per-Doc set.
struct Problem {
  std::vector<PlannedDocument> longest_first;
  std::map<DocumentId, std::size_t> position;  // in packing order
  std::int64_t ranks = 0;
  std::int64_t rows = 0;     // ceil(C/N)
  std::int64_t padding = 0;  // rows in all
  std::int64_t pairs = 0;    // of all documents
  FlashCpOptions options;
};

// The Per-Doc set: the first `count` of `longest_first`, and what each rank holds of them.
struct PerDocSet {
  std::int64_t count = 0;
  std::int64_t cursor = 0;
  std::int64_t pairs = 0;
  std::vector<RankBase> ranks;
};

Problem make_problem(std::span<const PlannedDocument> documents, std::int64_t ranks, const FlashCpOptions& options) {
  Problem problem;
  problem.longest_first.assign(documents.begin(), documents.end());
  std::stable_sort(problem.longest_first.begin(), problem.longest_first.end(),
                   [](const PlannedDocument& a, const PlannedDocument& b) { return a.tokens > b.tokens; });
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const bool fresh = problem.position.emplace(documents[i].document, i).second;
    LH_ASSERT(fresh, "document {} stands twice in one sequence", documents[i].document);
    tokens += documents[i].tokens;
    problem.pairs += causal_pairs(documents[i].tokens);
  }
  problem.ranks = ranks;
  problem.rows = (tokens + ranks - 1) / ranks;
  problem.padding = problem.rows * ranks - tokens;
  problem.options = options;
  return problem;
}

// Calls `visit(rank, shard)` for the 2N zigzag chunks of a Per-Doc document.
template <class Visit>
void for_chunks(const PlannedDocument& document, std::int64_t ranks, std::int64_t cursor, const Visit& visit) {
  const std::int64_t chunks = 2 * ranks;
  std::int64_t prefix = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t tokens = chunk_tokens(document.tokens, chunks, cursor, chunk);
    if (tokens == 0) continue;
    const std::int64_t rank = std::min(chunk, chunks - 1 - chunk);
    visit(static_cast<std::size_t>(rank), Shard{document.document, prefix, tokens, document.tokens});
    prefix += tokens;
  }
}

void grow(PerDocSet& set, const Problem& problem, std::int64_t count) {
  set.ranks.resize(static_cast<std::size_t>(problem.ranks));
  for (; set.count < count; ++set.count) {
    const PlannedDocument& document = problem.longest_first[static_cast<std::size_t>(set.count)];
    for_chunks(document, problem.ranks, set.cursor, [&](std::size_t rank, const Shard& shard) {
      RankBase& base = set.ranks[rank];
      base.tokens += shard.tokens;
      base.pairs += shard_pairs(shard.prefix, shard.tokens);
      if (!shard.is_last()) base.nonlast += shard.tokens;
    });
    set.pairs += causal_pairs(document.tokens);
    set.cursor = (set.cursor + document.tokens) % (2 * problem.ranks);
  }
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

CpPlan to_plan(const Problem& problem, const PerDocSet& set, const WholeDocPlan& whole,
               const std::vector<std::int64_t>& padding) {
  std::vector<std::vector<Shard>> held(static_cast<std::size_t>(problem.ranks));
  for (std::size_t rank = 0; rank < held.size(); ++rank) held[rank] = whole.ranks()[rank].shards;
  CpPlan plan;
  std::int64_t cursor = 0;
  for (std::int64_t i = 0; i < set.count; ++i) {
    const PlannedDocument& document = problem.longest_first[static_cast<std::size_t>(i)];
    for_chunks(document, problem.ranks, cursor,
               [&](std::size_t rank, const Shard& shard) { held[rank].push_back(shard); });
    cursor = (cursor + document.tokens) % (2 * problem.ranks);
    plan.per_doc_documents.push_back(document.document);
  }
  plan.padded_tokens_per_rank = problem.rows;
  plan.ranks.resize(held.size());
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    std::sort(held[rank].begin(), held[rank].end(), [&](const Shard& a, const Shard& b) {
      const std::size_t x = problem.position.at(a.document), y = problem.position.at(b.document);
      return x != y ? x < y : a.prefix < b.prefix;
    });
    for (const Shard& shard : held[rank]) append_shard(plan.ranks[rank], shard);
    append_shard(plan.ranks[rank], padding_shard(padding[rank]));
  }
  return plan;
}

CpPlan build(const Problem& problem, std::int64_t per_doc) {
  PerDocSet set;
  grow(set, problem, per_doc);
  const std::vector<std::int64_t> padding = padding_rows(problem, set);
  return to_plan(problem, set, make_whole(problem, set, padding), padding);
}

// Algorithm 1: the first Per-Doc count whose imbalance is within the limit; if none is, the count of least imbalance.
std::int64_t search(const Problem& problem) {
  const auto documents = static_cast<std::int64_t>(problem.longest_first.size());
  PerDocSet set;
  std::int64_t best = 0;
  double best_imbalance = 0;
  for (std::int64_t count = 0;;) {
    grow(set, problem, count);
    const double current = imbalance(problem, set, make_whole(problem, set, padding_rows(problem, set)));
    if (current <= problem.options.imbalance_limit) return count;
    if (count == 0 || current < best_imbalance) {
      best = count;
      best_imbalance = current;
    }
    if (count == documents) return best;
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
  return build(problem, search(problem));
}

tl::expected<CpPlan, std::string> plan_flashcp_with(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                    std::int64_t per_doc, const FlashCpOptions& options) {
  if (auto reason = refusal(documents, ranks, options)) return tl::unexpected(*reason);
  LH_ASSERT(per_doc >= 0 && per_doc <= static_cast<std::int64_t>(documents.size()), "{} Per-Doc documents of {}",
            per_doc, documents.size());
  return build(make_problem(documents, ranks, options), per_doc);
}

tl::expected<std::vector<CpPlan>, std::string> flashcp_candidates(std::span<const PlannedDocument> documents,
                                                                  std::int64_t ranks, const FlashCpOptions& options) {
  if (auto reason = refusal(documents, ranks, options)) return tl::unexpected(*reason);
  const Problem problem = make_problem(documents, ranks, options);
  const auto all = static_cast<std::int64_t>(documents.size());
  std::vector<std::int64_t> counts = {search(problem)};
  const auto offer = [&](std::int64_t count) {
    if (count <= all && std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
  };
  offer(0);
  for (std::int64_t power = 1; power <= all; power *= 2) {
    offer(power);
    if (power > 1) offer(power + power / 2);
  }
  offer(all);
  std::vector<CpPlan> plans;
  for (const std::int64_t count : counts) plans.push_back(build(problem, count));
  return plans;
}

tl::expected<CpPlan, std::string> plan_flashcp_scored(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                      const FlashCpOptions& options, const CpScore& score) {
  auto candidates = flashcp_candidates(documents, ranks, options);
  if (!candidates) return tl::unexpected(candidates.error());
  std::size_t best = 0;
  double best_score = score(candidates->front());
  for (std::size_t i = 1; i < candidates->size(); ++i) {
    const double value = score((*candidates)[i]);
    if (value < best_score) {
      best = i;
      best_score = value;
    }
  }
  return std::move((*candidates)[best]);
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
