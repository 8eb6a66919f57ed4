// zigzag-cp: sequences shared by context-parallel groups, keys and values sent round a ring.
#include <fmt/format.h>

#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/ring_shapes.h"
#include "sim/strategies/families.h"
#include "sim/strategies/step/context_step.h"

namespace longhaul {
namespace {

Planned plan_ring(const StrategyRequest& request, const SequencePlanner& planner) {
  if (request.degrees.cp > kMostRingRanks) {
    return tl::unexpected(fmt::format("a ring of {} ranks is larger than {}", request.degrees.cp, kMostRingRanks));
  }
  auto plans = plan_batch(request, planner);
  if (!plans) return tl::unexpected(plans.error());
  RingScheme scheme(request.degrees.cp);
  std::vector<std::vector<RingStepShape>> shapes;
  std::size_t made = SIZE_MAX;
  const auto set_shape = [&](ShapeSet& shape, const StepBuilder& step, int micro, int member) {
    if (made != static_cast<std::size_t>(micro)) {
      made = static_cast<std::size_t>(micro);
      shapes = ring_shapes((*plans)[made]);
    }
    const std::vector<RingStepShape>& of_rank = shapes[static_cast<std::size_t>(member)];
    step.set_rows(shape, of_rank.front().block_rows);
    scheme.set_shape(shape, member, of_rank);
  };
  PlannedStep planned;
  planned.schedule = context_schedule(
      request, scheme, [&] { return scheme.role(); }, set_shape);
  planned.plan = [plans = std::make_shared<const std::vector<CpPlan>>(std::move(*plans)), request] {
    return plans_json(*plans, request, false);
  };
  return planned;
}

}  // namespace

void add_ring_strategies(std::vector<Strategy>& list) {
  Strategy zigzag;
  zigzag.name = "zigzag-cp";
  zigzag.baseline = "zigzag-cp";
  zigzag.family = StrategyFamily::kContext;
  zigzag.note = "gradients of keys and values travel in bf16; ring-flash-attention carries them in fp32";
  zigzag.plan = [](const StrategyRequest& request) { return plan_ring(request, plan_zigzag_cp); };
  list.push_back(std::move(zigzag));
}

}  // namespace longhaul
