// FlashCP's planner: whole documents on ranks where they fit, a bit of some cut to equalise tokens, the longest cut
// per document (FlashCP, arXiv 2606.08476: Algorithm 1; flashcp.md 1.3-1.6).
//
// The paper leaves open where documents are cut, the imbalance limit, and whether Per-Doc work counts; the options name
// our choices (flashcp.md 1.6). Invariants of every plan: each token once, exactly ceil(C/N) rows on every rank. Ties
// go to the earlier document, the lower rank and the earlier move, so a plan is a function of its input alone.
//
// Beyond the paper: `ranks_per_node` keeps split documents inside a node where that is possible (flashcp.md 6.7c), and
// plan_flashcp_by_time takes the plan of least modelled time instead of the first within the limit (6.7b).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/strategies/context_parallel/plan.h"

namespace longhaul {

enum class FlashCutRule : std::uint8_t {
  kEqualise,      // move the piece that costs least in overload and in sent tokens
  kEqualiseSwap,  // the same, then exchange tails for heads until the limit holds
  kNaive,         // always the tail of the longest shard of the rank with most tokens
};

struct FlashCpOptions {
  // R: the first plan whose max / mean pairs is at most this is taken. The paper gives no value; 1.05 is ours.
  double imbalance_limit = 1.05;
  FlashCutRule cut_rule = FlashCutRule::kEqualise;
  // Weight of overloaded pairs against sent tokens when a cut is chosen (lambda of flashcp.md 1.6).
  double overload_weight = 1.0;
  // Whether a rank's pairs of Per-Doc chunks count in balance and in "least loaded". The paper does not say.
  bool count_per_doc_pairs = true;
  // Ranks of a node, 0: nodes do not matter. Otherwise documents go whole to the node with the fewest pairs, tokens are
  // equalised inside nodes before they are between nodes, and a Per-Doc document is cut over the ranks of the node with
  // most rows left if it fits there.
  std::int64_t ranks_per_node = 0;
};

// Smaller is better; usually the modelled time of a step.
using CpScore = std::function<double(const CpPlan&)>;

// Algorithm 1: moves the longest document to the Per-Doc set until the limit holds. From 256 Per-Doc documents on the
// set grows by a 64th at a time, which bounds the search on sequences of very many documents.
tl::expected<CpPlan, std::string> plan_flashcp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                               const FlashCpOptions& options = {});
// The plan with the `per_doc` longest documents in the Per-Doc set (0 <= per_doc <= number of documents).
tl::expected<CpPlan, std::string> plan_flashcp_with(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                    std::int64_t per_doc, const FlashCpOptions& options = {});
// Candidates for a scorer: Algorithm 1's plan first, then the plans for 0, 1, 2, 3, 4, 6, 8, 12, 16, ... and all
// documents in the Per-Doc set, without repeats. Where documents x ranks exceed 2^17: 0, 1, 8, 64, ... as long as there
// are no more Per-Doc shards than documents.
tl::expected<std::vector<CpPlan>, std::string> flashcp_candidates(std::span<const PlannedDocument> documents,
                                                                  std::int64_t ranks,
                                                                  const FlashCpOptions& options = {});
// The candidate with the least score; the first of equals.
tl::expected<CpPlan, std::string> plan_flashcp_scored(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                      const FlashCpOptions& options, const CpScore& score);

// Which candidates plan_flashcp_by_time considers.
struct FlashCpSearch {
  std::vector<FlashCutRule> rules = {FlashCutRule::kEqualise, FlashCutRule::kEqualiseSwap};  // in place of cut_rule
  bool limit_binds = true;  // only plans within the imbalance limit, or those of least imbalance if there is none
  std::int64_t refine_trials = 16'000;  // plans scored, at most, for each of the few that are refined
  // Only plans that send no more than Algorithm 1 by the naive rule does (B_max of flashcp.md 1.2), unless each of them
  // is slower than Algorithm 1 by one of `rules`. Where the limit binds and documents x ranks are at most 2^17.
  bool save_as_naive = true;
};
// The candidate of all rules with the least score; the first of equals. Small plans are refined (refine.h).
tl::expected<CpPlan, std::string> plan_flashcp_by_time(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                       const FlashCpOptions& options, const FlashCpSearch& search,
                                                       const CpScore& score);

// The exchange between two documents that balances tokens and pairs at once (flashcp.md 1.3, fig. 4(2)): the first
// `keep_a` tokens of A stay on A's rank u and the rest goes to B's rank; the first `keep_b` tokens of B stay on B's
// rank and the rest goes to u.
struct TwoDocumentExchange {
  std::int64_t keep_a = 0;  // Delta l1, in [0, a]
  std::int64_t keep_b = 0;  // Delta l2, in [0, b]
  bool operator==(const TwoDocumentExchange&) const = default;
};
struct TwoDocumentState {
  std::int64_t target_tokens = 0;  // T = C/N
  double target_pairs = 0;         // Wavg
  std::int64_t rank_tokens = 0;    // Tu, with A whole on u
  std::int64_t rank_pairs = 0;     // Wu
  std::int64_t a = 0;              // tokens of A
  std::int64_t b = 0;              // tokens of B
};
// Tokens of rank u come out exactly at the target; pairs as near as whole tokens and the lengths allow. None where no
// cut gives the target tokens, or where k = T - Tu + a - b is 0 (this pair cannot move work).
std::optional<TwoDocumentExchange> two_document_exchange(const TwoDocumentState& state);

}  // namespace longhaul
