// Modelled time of context-parallel plans: what planners compare candidates by.
//
// One layer: attention of the slowest rank plus communication alone, both passes, recompute included; copies into token
// order and merging of K/V gradients as memory traffic. Kernel times and transfers are those of the device and the
// cluster, each alone: neither slows the other down. Ignores everything outside attention, which is equal on all ranks
// where tokens are.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "sim/strategies/context_parallel/plan.h"
#include "sim/strategies/strategy.h"

namespace longhaul {

// How K and V reach the ranks that need them.
enum class CpTraffic : std::uint8_t {
  kFull,     // every rank gives all of its rows to an all-gather
  kNonlast,  // shards that are not the last of their document, padded to the largest rank's (FlashCP)
  kNeed,     // an exchange of exactly what each rank needs
};

class CpClock {
 public:
  explicit CpClock(const StrategyRequest& request);
  ~CpClock();
  CpClock(const CpClock&) = delete;
  CpClock& operator=(const CpClock&) = delete;

  // Whether device and cluster are known; all else asserts it.
  bool known() const;

  // Seconds of one layer. `overlap`: what needs no gathered row runs beside the transfer, forward and backward.
  double layer_seconds(const CpPlan& plan, CpTraffic traffic, bool overlap) const;
  // Of the slowest rank's attention alone, forward pass (WLB-LLM's criterion, flashcp.md 2.2).
  double forward_attention_seconds(const CpPlan& plan) const;

 private:
  struct Transfers;
  struct PassSeconds {
    double forward = 0, backward = 0;
  };
  PassSeconds attention(const AttentionWork& work) const;
  // One launch over all shards of a rank; kept, since searches ask for the same ranks again and again.
  PassSeconds rank_attention(const std::vector<Shard>& shards, bool full) const;
  double copy_seconds(std::int64_t rows) const;
  PassSeconds communication(const CpPlan& plan, CpTraffic traffic) const;

  const StrategyRequest* request_;
  double forward_passes_;
  std::unique_ptr<Transfers> transfers_;
};

}  // namespace longhaul
