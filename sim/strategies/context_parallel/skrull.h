// Skrull's choice of micro-batches (GDS; flashcp.md 2.9): which documents of a step each replica takes, and in which of
// its micro-batches. DACP (dispatch.h) then places each micro-batch on the ranks.
//
// Documents go longest first to the replica with least FLOPs. Each replica's, shortest first, are dealt in turn to its
// micro-batches, so that each holds short and long ones; their number, one for all replicas, grows from the least that
// buckets can hold until DACP finds a place for every document. Units: tokens; work in any unit.
#pragma once

#include <memory>

#include "sim/strategies/context_parallel/wlb.h"

namespace longhaul {

struct SkrullBatches {
  std::shared_ptr<const Batch> batch;  // sequence chunk x replicas + replica
  std::int64_t micro_batches = 1;      // of a replica
  double imbalance = 1;                // work of the heaviest replica over the mean
};

// The error: fewer documents than micro-batches, or documents that no number of micro-batches fits into buckets.
tl::expected<SkrullBatches, std::string> skrull_batches(const Batch& loaded, std::int64_t replicas, std::int64_t ranks,
                                                        std::int64_t bucket_tokens, const WlbWork& work);
// Strategy::select of skrull: nothing unless "micro_batches" is "gds".
tl::expected<std::string, std::string> select_skrull(StrategyRequest& request,
                                                     std::span<const std::shared_ptr<const Batch>> loaded);

// Buckets over an even share of the tokens; the paper gives sizes for two models (26K, 13K) and no rule.
constexpr double kSkrullRoom = 1.5;

}  // namespace longhaul
