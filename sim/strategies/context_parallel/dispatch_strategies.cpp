// magi, skrull and hybrid-cp: chunks or documents dealt to ranks, keys and values sent to those that need them.
#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/dispatch.h"
#include "sim/strategies/context_parallel/document_step.h"
#include "sim/strategies/context_parallel/gather_step.h"
#include "sim/strategies/context_parallel/skrull.h"
#include "sim/strategies/families.h"
#include "sim/strategies/step/copies_option.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMagiChunk = 2048;  // the benchmark's chunk_size (flashcp.md 2.7)
constexpr std::int64_t kMagiStages = 2;    // the benchmark's number of remote stages
constexpr std::int64_t kMostStages = 8;

Strategy dispatch_strategy(std::string name, std::string note) {
  Strategy strategy;
  strategy.baseline = strategy.name = std::move(name);
  strategy.family = StrategyFamily::kContext;
  strategy.note = std::move(note);
  return strategy;
}

// A gather a stage, each exact, not kept for the backward pass; the local stage runs while the first arrives.
GatherStep cast_step(int stages, CastDeal deal) {
  GatherStep step;
  step.stages = {{"attention_own", true, {}}};
  for (int stage = 0; stage < stages; ++stage) {
    GatherConfig gather{"kv" + std::to_string(stage), true, false};
    gather.regather = gather.exact = true;
    step.gathers.push_back(gather);
    step.stages.push_back({"attention" + std::to_string(stage), false, {stage}});
  }
  step.rows = StageRows::kSome;
  step.shapes = [stages, deal](const CpPlan& plan) { return cast_shapes(plan, stages, deal); };
  step.traffic = CpTraffic::kNeed;
  return step;
}

Strategy magi() {
  Strategy strategy = dispatch_strategy(
      "magi",
      "group-cast as an exchange, a copy a destination (the a2av back end); a stage's results are merged apart");
  strategy.option_keys = {"chunk_tokens", "deal", "stages"};
  strategy.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    reader.integer("chunk_tokens", 1, kMostTokens);
    reader.choice("deal", {"in-order", "shuffled"});
    reader.integer("stages", 1, kMostStages);
  };
  strategy.plan = [](const StrategyRequest& request) -> Planned {
    const std::int64_t chunk = request.options.value("chunk_tokens", kMagiChunk);
    auto plans = plan_batch(request, [&](std::span<const PlannedDocument> documents, std::int64_t ranks) {
      return plan_magi(documents, ranks, chunk);
    });
    if (!plans) return tl::unexpected(plans.error());
    const auto stages = static_cast<int>(request.options.value("stages", kMagiStages));
    const bool shuffled = request.options.value("deal", "in-order") == "shuffled";
    return plan_gather_step(request, std::move(*plans),
                            cast_step(stages, shuffled ? CastDeal::kShuffled : CastDeal::kInOrder));
  };
  return strategy;
}

Strategy skrull() {
  Strategy strategy = dispatch_strategy("skrull", "distributed documents are gathered as FlashCP gathers");
  strategy.baseline = "allgather-cp";
  strategy.option_keys = {"bucket_tokens", "micro_batches"};
  strategy.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    reader.integer("bucket_tokens", 1, kMostTokens);
    reader.choice("micro_batches", {"packed", "gds"});
  };
  strategy.select = select_skrull;
  strategy.plan = [](const StrategyRequest& request) -> Planned {
    auto plans = plan_batch(request, [&](std::span<const PlannedDocument> documents, std::int64_t ranks) {
      // And a row for each document, so that all may be distributed.
      const double room = kSkrullRoom * static_cast<double>(even_share(documents, ranks));
      const std::int64_t bucket = request.options.value(
          "bucket_tokens", static_cast<std::int64_t>(room) + static_cast<std::int64_t>(documents.size()));
      return plan_skrull(documents, ranks, bucket);
    });
    if (!plans) return tl::unexpected(plans.error());
    return plan_gather_step(request, std::move(*plans), sharding_aware_step(CpTraffic::kNonlast, true));
  };
  return strategy;
}

Strategy hybrid_cp() {
  Strategy strategy = dispatch_strategy(
      "hybrid-cp",
      "together the ring of a document's group is one exchange beside the whole documents' attention; no pipelines");
  strategy.option_keys = {"copies", "documents", "rank_tokens"};
  strategy.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    reader.integer("rank_tokens", 1, kMostTokens);
    const std::string documents = reader.choice("documents", {"together", "one-by-one"}).value_or("together");
    if (check_copies(reader) == "framework" && documents == "together") {
      reader.add_error("copies", "is \"framework\" without rings", "\"documents\": \"one-by-one\" beside it");
    }
  };
  strategy.plan = [](const StrategyRequest& request) -> Planned {
    if (request.options.value("documents", "together") == "one-by-one") {
      return plan_document_step(request, request.options.value("rank_tokens", std::int64_t{0}),
                                framework_copies(request) ? RingFlavor::kPadded : RingFlavor::kTransformerEngine);
    }
    auto plans = plan_batch(request, [&](std::span<const PlannedDocument> documents, std::int64_t ranks) {
      return plan_hybrid_cp(documents, ranks, request.options.value("rank_tokens", even_share(documents, ranks)));
    });
    if (!plans) return tl::unexpected(plans.error());
    return plan_gather_step(request, std::move(*plans), sharding_aware_step(CpTraffic::kNeed, true));
  };
  return strategy;
}

}  // namespace

void add_dispatch_strategies(std::vector<Strategy>& list) {
  list.push_back(magi());
  list.push_back(skrull());
  list.push_back(hybrid_cp());
}

}  // namespace longhaul
