// What a strategy is: a name, the workloads that it can run, and a function from one batch to a plan and a schedule.
//
// A strategy may ask how long a piece of work takes alone (KernelModel, Collectives); it never sees simulated time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/core/json.h"
#include "sim/cost/estimate.h"
#include "sim/schedule/schedule.h"
#include "sim/workload/training.h"

namespace longhaul {

// Tokens, rows or documents that an option may name.
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

// Which degree of a layout holds the ranks that share a sequence, and so which defaults hold (cli.md, "A study").
enum class StrategyFamily : std::uint8_t {
  kData,      // dp alone
  kContext,   // cp x dp
  kSequence,  // sp x dp, sp a divisor of the query heads
  kPipeline,  // pp x sp x dp
};

// All degrees of one row, each at least 1; tp and ep are 1 for every strategy built so far.
struct Degrees {
  int pp = 1, cp = 1, sp = 1, dp = 1;
  int ranks() const { return pp * cp * sp * dp; }
  bool operator==(const Degrees&) const = default;
};

struct StrategyRequest {
  std::shared_ptr<const Batch> batch;
  ModelShape model;
  int ranks = 1;
  int gpus_per_node = 1;
  std::int64_t memory_limit_bytes = 0;  // of one device, reserved bytes taken off; 0: unknown
  Training training;
  Degrees degrees;                       // resolved: degrees.ranks() == ranks
  Json options = Json::object();         // policy keys of the strategy's entry, checked
  const Cluster* cluster = nullptr;      // may be null in tests: planners then use ratios of FLOPs
  const KernelModel* kernels = nullptr;  // likewise
};

struct PlannedStep {
  std::shared_ptr<const Schedule> schedule;
  std::function<Json()> plan;  // the plan in the strategy's own words, for `longhaul plan`
  // Options of the entry that give this plan again, whatever a later kernel or network model says; empty where the plan
  // follows from the study alone.
  std::function<Json()> pinned;
  // What a planner that picks one of several cuts for each micro-batch took, and how often: for the report.
  std::map<std::string, std::int64_t> cuts;

  std::int64_t tokens() const { return schedule->batch->tokens(); }
};
// The error is the reason why the strategy cannot run this workload ("not_applicable").
using Planned = tl::expected<PlannedStep, std::string>;

struct Strategy {
  std::string name;
  std::string baseline;  // the strategy that it was published against; its own name if it is a baseline
  StrategyFamily family = StrategyFamily::kData;
  ObjectiveKind objective = ObjectiveKind::kCausalLm;
  std::vector<std::string> option_keys;
  // Adds an error for each option value that is not allowed. `file` and `path` locate the entry.
  std::function<void(const Json& options, const std::string& file, const std::string& path, Errors&)> check_options;
  std::function<Planned(const StrategyRequest&)> plan;
  // May be empty. Otherwise called before `plan` with the batches of steps 0 .. k as they are loaded: puts what step k
  // trains into the request (documents that waited, micro-batches packed anew). Gives a line on steps 0 .. k for the
  // report, empty if there is nothing to say. The error is a reason, as of `plan`.
  std::function<tl::expected<std::string, std::string>(StrategyRequest&,
                                                       std::span<const std::shared_ptr<const Batch>> loaded)>
      select;
  std::string note;  // shown in the report: what of the paper is not modelled yet
};

// Reasons that hold for every strategy: wrong objective, one GPU, degrees that the model or the batch cannot fill.
tl::expected<void, std::string> check_applicable(const Strategy& strategy, const StrategyRequest& request);

// Fills in what `layout` leaves out for `ranks` GPUs: the context family takes all ranks, the sequence family the
// largest divisor of them over which query and K/V heads spread evenly, pipelines pp = the largest divisor of the layer
// count not above the node count but at least 2, sp = as in the sequence family, of the GPUs of a stage and inside a
// node; dp the rest. The error is a reason (degrees that do not multiply).
tl::expected<Degrees, std::string> resolve_degrees(StrategyFamily family, const Layout& layout, int ranks,
                                                   int gpus_per_node, const ModelShape& model);

}  // namespace longhaul
