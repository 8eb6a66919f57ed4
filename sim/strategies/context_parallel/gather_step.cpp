#include "sim/strategies/context_parallel/gather_step.h"

#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/step/context_step.h"

namespace longhaul {

GatherStep full_gather_step() {
  GatherStep step;
  step.gathers = {{"kv", false, true}};
  step.stages = {{"attention", false, {0}}};
  step.shapes = full_gather_shapes;
  return step;
}

GatherStep sharding_aware_step(CpTraffic traffic, bool overlap) {
  GatherStep step;
  GatherConfig gather{"kv", true, true};
  gather.exact = traffic == CpTraffic::kNeed;
  step.gathers = {gather};
  step.stages = {{"attention", true, {0}}};
  if (overlap) {
    step.stages = {{"attention_own", true, {}}, {"attention", false, {0}}};
    step.rows = StageRows::kOwn;
  }
  step.shapes = [traffic, overlap](const CpPlan& plan) {
    return traffic == CpTraffic::kNeed ? exact_shapes(plan, overlap) : sharding_aware_shapes(plan, overlap);
  };
  step.traffic = traffic;
  return step;
}

PlannedStep plan_gather_step(const StrategyRequest& request, std::vector<CpPlan> plans, const GatherStep& step) {
  GatherScheme scheme(step.gathers, step.stages, step.rows);
  std::vector<CpRankShape> shapes;
  std::size_t made = SIZE_MAX;
  const auto set_shape = [&](ShapeSet& shape, const StepBuilder& builder, int micro, int member) {
    if (made != static_cast<std::size_t>(micro)) {
      made = static_cast<std::size_t>(micro);
      shapes = step.shapes(plans[made]);
    }
    const CpRankShape& of_rank = shapes[static_cast<std::size_t>(member)];
    builder.set_rows(shape, of_rank.rows);
    for (std::size_t i = 0; i < of_rank.gathers.size(); ++i) {
      scheme.set_gather(shape, static_cast<int>(i), of_rank.gathers[i]);
    }
    for (std::size_t i = 0; i < of_rank.stages.size(); ++i) {
      scheme.set_pieces(shape, static_cast<int>(i), of_rank.stages[i].pieces);
      if (of_rank.stages[i].rows != nullptr) scheme.set_stage_rows(shape, static_cast<int>(i), of_rank.stages[i].rows);
    }
  };
  PlannedStep planned;
  planned.schedule = context_schedule(
      request, scheme, [&] { return scheme.role(); }, set_shape);
  const CpTraffic traffic = step.traffic;
  planned.plan = [plans = std::make_shared<const std::vector<CpPlan>>(std::move(plans)), request, traffic] {
    return plans_json(*plans, request, traffic);
  };
  return planned;
}

}  // namespace longhaul
