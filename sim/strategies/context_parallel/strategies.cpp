// allgather-cp, per-doc-cp and flashcp: sequences shared by context-parallel groups, keys and values gathered.
#include <fmt/format.h>

#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/flashcp.h"
#include "sim/strategies/context_parallel/plan.h"
#include "sim/strategies/context_parallel/shapes.h"
#include "sim/strategies/families.h"
#include "sim/strategies/step/context_step.h"

namespace longhaul {
namespace {

using ShapeMaker = std::vector<CpRankShape> (*)(const CpPlan&);

Planned plan_step(const StrategyRequest& request, const SequencePlanner& planner, bool sharding_aware) {
  auto plans = plan_batch(request, planner);
  if (!plans) return tl::unexpected(plans.error());
  // FlashCP packs K and V of what it sends in one buffer and reads whole documents in place; the static schemes gather
  // K and V by a collective each and read everything from the gathered copy (flashcp.md 1.2, 2.1).
  GatherScheme scheme({{"kv", sharding_aware, true}}, {{"attention", sharding_aware, {0}}});
  const ShapeMaker make_shapes = sharding_aware ? sharding_aware_shapes : full_gather_shapes;
  std::vector<CpRankShape> shapes;
  std::size_t made = SIZE_MAX;
  const auto set_shape = [&](ShapeSet& shape, const StepBuilder& step, int micro, int member) {
    if (made != static_cast<std::size_t>(micro)) {
      made = static_cast<std::size_t>(micro);
      shapes = make_shapes((*plans)[made]);
    }
    const CpRankShape& of_rank = shapes[static_cast<std::size_t>(member)];
    step.set_rows(shape, of_rank.rows);
    scheme.set_gather(shape, 0, of_rank.gather);
    scheme.set_pieces(shape, 0, of_rank.pieces);
  };
  PlannedStep planned;
  planned.schedule = context_schedule(
      request, scheme, [&] { return scheme.role(); }, set_shape);
  planned.plan = [plans = std::make_shared<const std::vector<CpPlan>>(std::move(*plans)), request, sharding_aware] {
    return plans_json(*plans, request, sharding_aware);
  };
  return planned;
}

FlashCpOptions flashcp_options(const Json& options) {
  FlashCpOptions parsed;
  parsed.imbalance_limit = options.value("imbalance_limit", parsed.imbalance_limit);
  const std::string rule = options.value("cut_rule", "equalise");
  if (rule == "equalise-swap") parsed.cut_rule = FlashCutRule::kEqualiseSwap;
  if (rule == "naive") parsed.cut_rule = FlashCutRule::kNaive;
  parsed.count_per_doc_pairs = options.value("count_per_doc_pairs", parsed.count_per_doc_pairs);
  return parsed;
}

Strategy context_strategy(std::string name, std::string baseline) {
  Strategy strategy;
  strategy.name = std::move(name);
  strategy.baseline = std::move(baseline);
  strategy.family = StrategyFamily::kContext;
  return strategy;
}

}  // namespace

void add_context_parallel_strategies(std::vector<Strategy>& list) {
  Strategy allgather = context_strategy("allgather-cp", "allgather-cp");
  allgather.plan = [](const StrategyRequest& request) { return plan_step(request, plan_allgather_cp, false); };
  list.push_back(allgather);

  Strategy per_doc = context_strategy("per-doc-cp", "allgather-cp");
  per_doc.plan = [](const StrategyRequest& request) { return plan_step(request, plan_per_doc_cp, false); };
  list.push_back(per_doc);

  Strategy flashcp = context_strategy("flashcp", "allgather-cp");
  flashcp.option_keys = {"imbalance_limit", "cut_rule", "count_per_doc_pairs"};
  flashcp.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    reader.number("imbalance_limit", 1.0, 100.0);
    reader.choice("cut_rule", {"equalise", "equalise-swap", "naive"});
    reader.boolean("count_per_doc_pairs");
  };
  flashcp.plan = [](const StrategyRequest& request) {
    const FlashCpOptions options = flashcp_options(request.options);
    return plan_step(
        request,
        [&](std::span<const PlannedDocument> documents, std::int64_t ranks) {
          return plan_flashcp(documents, ranks, options);
        },
        true);
  };
  list.push_back(flashcp);
}

}  // namespace longhaul
