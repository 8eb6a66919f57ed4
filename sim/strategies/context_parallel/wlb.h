// WLB-LLM (OSDI'25; flashcp.md 2.2): per micro-batch the better of per-sequence and per-document sharding, and packing
// of documents into micro-batches of variable length.
//
// Packing minimises the work of the heaviest micro-batch, attention plus linear layers, under a limit of tokens. In the
// paper very long documents wait in queues by length until there is one for every micro-batch, and what fits nowhere
// waits for the next step: packing "delayed" of a study does so over its steps. Packing "variable" packs the documents
// of one step, all of which train in it: there are no queues, and what fits nowhere goes to the micro-batch of least
// work (DistCA's port of WLB-LLM, distca/planner/wlb_planner.py). Ignores pipelines: a micro-batch is what one group
// takes.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/strategies/context_parallel/modelled.h"

namespace longhaul {

// Smax of variable-length packing over the fixed length; WLB-LLM derives it from free memory and gives no value.
constexpr double kWlbPackingLimit = 1.25;
constexpr std::int64_t kWlbQueues = 2;  // the paper tries 1 to 3

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
  std::int64_t waiting_tokens() const;

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

struct WlbPlans {
  std::vector<CpPlan> plans;
  std::map<std::string, std::int64_t> cuts;  // "by sequence", "by document": packed sequences cut so
};
// By micro-batch (plan_batch). Options: "packing" fixed | variable | delayed, "packing_limit" >= 1, tokens of a
// micro-batch over those of the fixed packing, "queues" of delayed packing (wlb_thresholds).
tl::expected<WlbPlans, std::string> plan_wlb(const StrategyRequest& request);
// L_1 .. L_queues: half a window, then evenly up to the window: C/2 (1 + i / queues). The paper tunes them offline and
// gives none; it tries 1 to 3 queues.
std::vector<std::int64_t> wlb_thresholds(std::int64_t window, std::int64_t queues);

// Delayed packing over steps 0 .. k, what each step trained being found anew from the loaded batches.
struct WlbSteps {
  std::shared_ptr<const Batch> batch;  // of step k: a sequence a micro-batch
  // Over steps 0 .. k: steps that trained documents waited, by token and at most; documents and tokens that wait now;
  // work of the heaviest micro-batch over the mean, mean of the steps, here and with the documents as loaded.
  double mean_delay = 0;
  std::int64_t most_delay = 0;
  std::int64_t waiting_documents = 0, waiting_tokens = 0;
  double imbalance = 1, loaded_imbalance = 1;
};
// The error: a micro-batch of some step stays empty.
tl::expected<WlbSteps, std::string> wlb_steps(std::span<const std::shared_ptr<const Batch>> loaded,
                                              const ModelShape& model, std::int64_t replicas,
                                              std::int64_t micro_batch_sequences, double packing_limit,
                                              std::int64_t queues);
// Strategy::select of wlb-cp.
tl::expected<std::string, std::string> select_wlb(StrategyRequest& request,
                                                  std::span<const std::shared_ptr<const Batch>> loaded);

std::vector<std::string> wlb_option_keys();
void check_wlb_options(const Json& options, const std::string& file, const std::string& path, Errors& errors);

}  // namespace longhaul
