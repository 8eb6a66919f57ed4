// WLB-LLM (OSDI'25; flashcp.md 2.2): per micro-batch the better of per-sequence and per-document sharding, and packing
// of documents into micro-batches of variable length.
//
// Packing minimises the work of the heaviest micro-batch, attention plus linear layers, under a limit of tokens. In the
// paper very long documents wait in queues by length until there is one for every micro-batch, and what fits nowhere
// waits for the next step; `WlbPacker` does that over a stream of steps. A study's strategy packs the documents of its
// one step, all of which must train: there are no queues, and what fits nowhere goes to the micro-batch of least work
// (DistCA's port of WLB-LLM, distca/planner/wlb_planner.py). Ignores pipelines: a micro-batch is what one group takes.
#pragma once

#include <deque>
#include <vector>

#include "sim/strategies/context_parallel/modelled.h"

namespace longhaul {

// Work of a document in any unit: `per_pair` x causal pairs + `per_token` x tokens.
struct WlbWork {
  double per_pair = 1;
  double per_token = 0;
  double of(std::int64_t tokens) const;
};

struct WlbBins {
  std::vector<std::vector<PlannedDocument>> bins;
  std::vector<std::int64_t> tokens;  // by bin
  std::vector<double> work;
};

class WlbPacker {
 public:
  // `thresholds` L_1 < L_2 < ...: documents of at least L_i tokens (and less than L_i+1) wait in queue i. `bins` >= 1.
  WlbPacker(std::int64_t bins, std::int64_t most_tokens, std::vector<std::int64_t> thresholds, WlbWork work);

  // One step. Documents are taken longest first after those left over before; a queue with a document for every bin
  // gives them first. Each goes to the bin of least work if it fits there, else to the shortest if it fits there, else
  // it is left over. Ties: the lower bin, the earlier document.
  WlbBins pack(std::span<const PlannedDocument> documents);

  // Documents that wait: in queues and left over.
  std::int64_t waiting() const;

 private:
  std::int64_t most_tokens_;
  std::size_t bins_;
  std::vector<std::int64_t> thresholds_;
  WlbWork work_;
  std::vector<std::deque<PlannedDocument>> queues_;
  std::vector<PlannedDocument> left_over_;
};

// All documents in one step, none deferred: what fits nowhere is forced into the bin of least work.
WlbBins wlb_pack_all(std::span<const PlannedDocument> documents, std::int64_t bins, std::int64_t most_tokens,
                     const WlbWork& work);

// Pairs of the slowest rank with every shard's queries padded to 128, the query tile (flashcp.md 2.2): WLB-LLM's
// criterion where no device is known.
double wlb_padded_pairs(const CpPlan& plan);

// The plan whose slowest rank attends faster; per-sequence sharding if they are equal.
tl::expected<CpPlan, std::string> plan_wlb_sequence(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                    const CpClock& clock);

// By micro-batch (plan_batch). Options: "packing" fixed | variable, "packing_limit" >= 1, tokens of a micro-batch over
// those of the fixed packing.
tl::expected<std::vector<CpPlan>, std::string> plan_wlb(const StrategyRequest& request);
std::vector<std::string> wlb_option_keys();
void check_wlb_options(const Json& options, const std::string& file, const std::string& path, Errors& errors);

}  // namespace longhaul
