// allgather-cp, per-doc-cp, te-allgather and wlb-cp: sequences shared by context-parallel groups, all keys and values
// gathered.
#include <optional>

#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/framework_step.h"
#include "sim/strategies/context_parallel/gather_step.h"
#include "sim/strategies/context_parallel/wlb.h"
#include "sim/strategies/families.h"
#include "sim/strategies/step/copies_option.h"

namespace longhaul {
namespace {

Strategy context_strategy(std::string name, std::string baseline) {
  Strategy strategy;
  strategy.name = std::move(name);
  strategy.baseline = std::move(baseline);
  strategy.family = StrategyFamily::kContext;
  return strategy;
}

Planned plan_static(const StrategyRequest& request, const SequencePlanner& planner, const GatherStep& step,
                    std::optional<FrameworkStyle> framework = std::nullopt) {
  auto plans = plan_batch(request, planner);
  if (!plans) return tl::unexpected(plans.error());
  if (framework && framework_copies(request)) return plan_framework_step(request, std::move(*plans), *framework);
  return plan_gather_step(request, std::move(*plans), step);
}

void set_copies_option(Strategy& strategy) {
  strategy.option_keys = {"copies"};
  strategy.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    check_copies(reader);
  };
}

// Transformer Engine's all_gather: K and V gathered one after the other, one launch for the front chunks and one for
// the back chunks, K and V gathered again in the backward pass (flashcp.md 2.4).
GatherStep te_allgather_step() {
  GatherStep step = full_gather_step();
  step.gathers.front().regather = true;
  step.stages = {{"attention_front", false, {0}}, {"attention_back", false, {0}}};
  step.rows = StageRows::kOwn;
  step.shapes = chunk_stage_shapes;
  return step;
}

}  // namespace

void add_context_parallel_strategies(std::vector<Strategy>& list) {
  Strategy allgather = context_strategy("allgather-cp", "allgather-cp");
  allgather.plan = [](const StrategyRequest& request) {
    return plan_static(request, plan_allgather_cp, full_gather_step(), FrameworkStyle::kViews);
  };
  set_copies_option(allgather);
  list.push_back(allgather);

  Strategy per_doc = context_strategy("per-doc-cp", "allgather-cp");
  per_doc.plan = [](const StrategyRequest& request) {
    return plan_static(request, plan_per_doc_cp, full_gather_step(), FrameworkStyle::kSlices);
  };
  set_copies_option(per_doc);
  list.push_back(per_doc);

  add_flashcp_strategy(list);

  Strategy te = context_strategy("te-allgather", "te-allgather");
  te.note = "the launches of front and back chunks follow each other; Transformer Engine issues them on two streams";
  te.plan = [](const StrategyRequest& request) {
    return plan_static(request, plan_zigzag_cp, te_allgather_step(), FrameworkStyle::kPadded);
  };
  set_copies_option(te);
  list.push_back(te);

  Strategy wlb = context_strategy("wlb-cp", "allgather-cp");
  wlb.option_keys = wlb_option_keys();
  wlb.check_options = check_wlb_options;
  wlb.select = select_wlb;
  wlb.plan = [](const StrategyRequest& request) -> Planned {
    auto plans = plan_wlb(request);
    if (!plans) return tl::unexpected(plans.error());
    PlannedStep step = plan_gather_step(request, std::move(plans->plans), full_gather_step());
    step.cuts = std::move(plans->cuts);
    return step;
  };
  list.push_back(wlb);
}

}  // namespace longhaul
