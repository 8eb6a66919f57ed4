// dcp: blocks of queries and keys dealt to ranks by a hypergraph partition (dcp.h), computed in divisions (blocks.h).
#include <memory>
#include <nlohmann/json.hpp>

#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/dcp_shapes.h"
#include "sim/strategies/context_parallel/shapes.h"
#include "sim/strategies/families.h"
#include "sim/strategies/step/context_step.h"

namespace longhaul {
namespace {

constexpr std::int64_t kDivisions = 4;  // the paper's T, the local one among them
constexpr std::int64_t kMostDivisions = 8;
constexpr double kMostImbalance = 100;

DcpOptions options_of(const StrategyRequest& request) {
  const Json& given = request.options;
  DcpOptions options;
  options.block_tokens = given.value("block_tokens", options.block_tokens);
  options.imbalance_inter = given.value("imbalance_inter", options.imbalance_inter);
  options.imbalance_intra = given.value("imbalance_intra", options.imbalance_intra);
  options.ranks_per_node = request.gpus_per_node;
  const Training& training = request.training;
  const std::int64_t forward = training.backward && training.recompute == Recompute::kFull ? 2 : 1;
  options.query_bytes = forward * BlockScheme::query_forward_bytes(request.model);
  options.key_bytes = forward * BlockScheme::key_pass_bytes(request.model);
  if (training.backward) {
    options.query_bytes += BlockScheme::query_backward_bytes(request.model);
    options.key_bytes += BlockScheme::key_pass_bytes(request.model);
  }
  return options;
}

// By micro-batch (chunk x dp + replica).
tl::expected<std::vector<DcpPlan>, std::string> plan_batch_dcp(const StrategyRequest& request) {
  const DcpOptions options = options_of(request);
  std::vector<DcpPlan> plans;
  std::vector<DcpPlan> of_sequences;
  // plan_batch walks the batch and refuses what no group can share; the rows that it gets are those of the DCP plan.
  const auto rows = plan_batch(request, [&](std::span<const PlannedDocument> documents, std::int64_t ranks) {
    auto plan = plan_dcp(documents, ranks, options);
    if (!plan) return tl::expected<CpPlan, std::string>(tl::unexpect, plan.error());
    of_sequences.push_back(std::move(*plan));
    return tl::expected<CpPlan, std::string>(of_sequences.back().rows);
  });
  if (!rows) return tl::unexpected(rows.error());
  const auto each = static_cast<std::size_t>(request.training.micro_batch_sequences);
  for (std::size_t first = 0; first < of_sequences.size(); first += each) {
    plans.push_back(concatenate(std::span<const DcpPlan>(of_sequences).subspan(first, each)));
  }
  return plans;
}

Planned plan(const StrategyRequest& request) {
  auto planned_batch = plan_batch_dcp(request);
  if (!planned_batch) return tl::unexpected(planned_batch.error());
  const auto plans = std::make_shared<const std::vector<DcpPlan>>(std::move(*planned_batch));
  const auto divisions = static_cast<int>(request.options.value("divisions", kDivisions)) - 1;
  BlockScheme scheme(divisions);
  std::vector<BlockShape> shapes;
  std::size_t made = SIZE_MAX;
  const auto set_shape = [&](ShapeSet& shape, const StepBuilder& builder, int micro, int member) {
    const auto index = static_cast<std::size_t>(micro);
    if (made != index) {
      made = index;
      shapes = dcp_shapes((*plans)[index], divisions);
    }
    builder.set_rows(shape, rank_row_map((*plans)[index].rows.ranks[static_cast<std::size_t>(member)]));
    scheme.set_shape(shape, shapes[static_cast<std::size_t>(member)]);
  };
  PlannedStep planned;
  planned.schedule = context_schedule(
      request, scheme, [&] { return scheme.role(); }, set_shape);
  planned.plan = [plans, request] {
    auto list = Json::array();
    const int replicas = request.degrees.dp;
    for (int i = 0; i < static_cast<int>(plans->size()); ++i) {
      list.push_back(
          {{"micro_batch", i / replicas},
           {"replica", i % replicas},
           {"sequences", micro_batch(i / replicas, i % replicas, replicas, request.training.micro_batch_sequences)},
           {"plan", dcp_plan_json((*plans)[static_cast<std::size_t>(i)])}});
    }
    return list;
  };
  return planned;
}

}  // namespace

void add_dcp_strategy(std::vector<Strategy>& list) {
  Strategy dcp;
  dcp.name = dcp.baseline = "dcp";
  dcp.family = StrategyFamily::kContext;
  dcp.note = "blocks hold all heads; block size is an option where the paper searches it; partitioner of our own";
  dcp.option_keys = {"block_tokens", "imbalance_inter", "imbalance_intra", "divisions"};
  dcp.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    reader.integer("block_tokens", 1, kMostTokens);
    reader.number("imbalance_inter", 0.0, kMostImbalance);
    reader.number("imbalance_intra", 0.0, kMostImbalance);
    reader.integer("divisions", 2, kMostDivisions);
  };
  dcp.plan = plan;
  list.push_back(std::move(dcp));
}

}  // namespace longhaul
