// ring-cp, zigzag-cp and te-p2p: sequences shared by context-parallel groups, keys and values sent round a ring.
#include <fmt/format.h>

#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/ring_shapes.h"
#include "sim/strategies/families.h"
#include "sim/strategies/step/context_step.h"
#include "sim/strategies/step/copies_option.h"
#include "sim/strategies/step/ring.h"

namespace longhaul {
namespace {

RingFlavor open_flavor(const StrategyRequest& request) {
  return framework_copies(request) ? RingFlavor::kFramework : RingFlavor::kRingFlashAttention;
}

Strategy ring_strategy(std::string name) {
  Strategy strategy;
  strategy.baseline = strategy.name = std::move(name);
  strategy.family = StrategyFamily::kContext;
  return strategy;
}

// `planner` deals a sequence's documents to the ranks, equal rows on each.
Planned plan_ring_step(const StrategyRequest& request, const SequencePlanner& planner, RingFlavor flavor) {
  if (request.degrees.cp > kMostRingRanks) {
    return tl::unexpected(fmt::format("a ring of {} ranks is larger than {}", request.degrees.cp, kMostRingRanks));
  }
  auto plans = plan_batch(request, planner);
  if (!plans) return tl::unexpected(plans.error());
  // A sequence cut as one document is halved by slices, as a single document is.
  const bool as_one = request.options.value("cut", "document") == "sequence";
  const bool masks = !as_one && request.batch->documents.size() > request.batch->sequences.size();
  RingScheme scheme(request.degrees.cp, flavor, masks);
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
    return plans_json(*plans, request, CpTraffic::kFull);
  };
  return planned;
}

}  // namespace

void add_ring_strategies(std::vector<Strategy>& list) {
  const char* bf16_gradients = "gradients of keys and values travel in bf16; ring-flash-attention carries them in fp32";
  Strategy zigzag = ring_strategy("zigzag-cp");
  zigzag.note = bf16_gradients;
  zigzag.option_keys = {"copies", "cut"};
  zigzag.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    reader.choice("cut", {"document", "sequence"});
    check_copies(reader);
  };
  // Every document cut in 2N chunks and padded to them, or the packed sequence as if it were one document.
  zigzag.plan = [](const StrategyRequest& request) {
    const bool sequence = request.options.value("cut", "document") == "sequence";
    return plan_ring_step(request, sequence ? plan_allgather_cp : plan_zigzag_cp, open_flavor(request));
  };
  list.push_back(std::move(zigzag));

  Strategy ring = ring_strategy("ring-cp");
  ring.note = bf16_gradients;
  ring.plan = [](const StrategyRequest& request) {
    return plan_ring_step(request, plan_contiguous_cp, open_flavor(request));
  };
  ring.option_keys = {"copies"};
  ring.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    check_copies(reader);
  };
  list.push_back(std::move(ring));

  Strategy te = ring_strategy("te-p2p");
  te.note = "merging a ring step follows its attention; Transformer Engine overlaps it with the next step's";
  te.plan = [](const StrategyRequest& request) {
    return plan_ring_step(request, plan_zigzag_cp,
                          framework_copies(request) ? RingFlavor::kPadded : RingFlavor::kTransformerEngine);
  };
  te.option_keys = {"copies"};
  te.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    check_copies(reader);
  };
  list.push_back(std::move(te));
}

}  // namespace longhaul
