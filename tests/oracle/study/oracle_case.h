// From a few numbers to the schedule of one training step, and what the ops of a schedule add up to.
//
// Models come from the shipped config.json files, topologies from the shipped ones. Sums walk the programs with
// cursors, as an executor does: they count what runs, not what a planner says. Folded ranks are walked too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/executor/simulate.h"
#include "sim/strategies/registry.h"

namespace longhaul::oracle {

struct StepCase {
  std::string strategy;
  ModelShape model;
  std::vector<std::vector<std::int64_t>> sequences;  // tokens of each document
  Objective objective;
  Degrees degrees;
  int gpus_per_node = 8;
  int zero_stage = 0;
  Recompute recompute = Recompute::kNone;
  std::int64_t micro_batch_sequences = 1;
  Json options = Json::object();
  const Cluster* cluster = nullptr;
};

// A shipped model or topology; asserts that it is there.
ModelShape shipped_model(const std::string& name);
Cluster shipped_cluster(const std::string& topology, int gpus);
KernelModel kernels_of(const Cluster& cluster);

StrategyRequest request_of(const StepCase& of);
// The error is the reason why the strategy cannot run it.
tl::expected<std::shared_ptr<const Schedule>, std::string> try_schedule(const StepCase& of);
std::shared_ptr<const Schedule> schedule_of(const StepCase& of);  // asserts that it can

// Every op of `rank` in launch order.
void for_each_op(const Schedule& schedule, int rank, const std::function<void(const OpInstance&)>& visit);

// Collectives of one role that a rank takes part in: one layer, one pass, or all (nullopt).
struct Selection {
  std::string role;
  std::optional<int> layer;
  std::optional<Pass> pass;
  std::optional<CollectiveKind> kind;
};

// Bytes of one rank over the collectives of a selection.
struct Volume {
  std::int64_t calls = 0;
  std::int64_t buffer = 0;       // exchange: all that stands in the send view, the rank's own part included
  std::int64_t leaves_gpu = 0;   // sent to others; ring collectives: (n-1) x the rank's part
  std::int64_t leaves_node = 0;  // exchange only
  bool operator==(const Volume&) const = default;
};
Volume volume_of(const Schedule& schedule, int rank, const Selection& selection, int gpus_per_node);

// Unmasked pairs of the attention ops of one pass and layer on one rank, for one query head each.
std::int64_t pairs_of(const Schedule& schedule, int rank, Pass pass, int layer);

// The same, op by op in launch order.
std::vector<std::int64_t> pairs_of_ops(const Schedule& schedule, int rank, Pass pass, int layer);

// The hidden states that a rank takes through `layer` in forward, chunk by chunk.
std::vector<RowMapPtr> rows_of(const Schedule& schedule, int rank, int layer);
// Their rows that are not padding.
std::int64_t tokens_of(const Schedule& schedule, int rank, int layer);

}  // namespace longhaul::oracle
