// 1f1b, seq1f1b and dpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "sim/network/collectives.h"
#include "sim/strategies/families.h"
#include "sim/strategies/pipeline/assignment.h"
#include "sim/strategies/pipeline/plan_json.h"
#include "sim/strategies/pipeline/planners.h"
#include "sim/strategies/pipeline/schedule.h"
#include "sim/strategies/pipeline/stage_weights.h"
#include "sim/strategies/step/head_parallel.h"
#include "sim/workload/arithmetic.h"

namespace longhaul {
namespace {

// Rates that planners assume where no device is known (tests): only ratios matter then.
constexpr double kNominalFlopsPerSecond = 4e14;
// Tokens of one document and rows of one GEMM at which the planner's rates are taken: large enough to be saturated.
constexpr std::int64_t kReferenceTokens = 16384;

// Compute launches of one layer: step.h's 11 and 13 ops, and those of head-parallel attention.
constexpr double kForwardLaunches = 16;
constexpr double kBackwardLaunches = 24;

PipelineLayout layout_of(const StrategyRequest& request) {
  return {request.degrees.dp, request.degrees.pp, request.degrees.sp};
}

double gemm_seconds(const KernelModel& kernels, GemmPass pass, std::int64_t m, std::int64_t n, std::int64_t k) {
  return kernels.gemm(pass, m, n, k).seconds;
}

// alpha2 of one layer: its matrix products on kReferenceTokens rows; backward has an input and a weight product each.
void linear_seconds(const KernelModel& kernels, const ModelShape& model, double& forward, double& backward) {
  const std::int64_t t = kReferenceTokens;
  const std::pair<std::int64_t, std::int64_t> weights[] = {{model.hidden, model.qkv_width()},
                                                           {model.q_width(), model.hidden},
                                                           {model.hidden, 2 * model.ffn},
                                                           {model.ffn, model.hidden}};
  forward = backward = 0;
  for (const auto& [in, out] : weights) {
    forward += gemm_seconds(kernels, GemmPass::kForward, t, out, in) / static_cast<double>(t);
    backward += (gemm_seconds(kernels, GemmPass::kBackwardInput, t, in, out) +
                 gemm_seconds(kernels, GemmPass::kBackwardWeight, in, out, t)) /
                static_cast<double>(t);
  }
}

// Seconds that one rank of a stage spends in the four all-to-alls of a layer, per token of the chunk and fixed.
void all_to_all_seconds(const StrategyRequest& request, PassCost& cost) {
  const int sp = request.degrees.sp;
  if (sp == 1 || request.cluster == nullptr) return;
  Collectives collectives(*request.cluster);
  const auto seconds = [&](std::int64_t per_peer) {
    std::vector<PeerMessage> messages;
    for (int from = 0; from < sp; ++from) {
      for (int to = 0; to < sp; ++to) {
        if (from != to) messages.push_back({from, to, Bytes{per_peer}});
      }
    }
    return collectives.exchange(messages).alone.seconds();
  };
  // Bytes to one peer per token: a rank holds 1/sp of the tokens and sends 1/sp of the heads, Q, K, V in and O out.
  const double per_token = 2.0 * static_cast<double>(2 * request.model.q_width() + 2 * request.model.kv_width()) /
                           (static_cast<double>(sp) * sp);
  const std::int64_t small = 1 << 20;
  const std::int64_t large = 1 << 24;
  const double slope = (seconds(large) - seconds(small)) / static_cast<double>(large - small);
  cost.a2a_token = std::max(0.0, slope) * per_token;
  cost.a2a_fixed = 4 * std::max(0.0, seconds(small) - slope * static_cast<double>(small));
}

// DPP's coefficients from the device's kernel times (dpp.md 2.2, "FLOP form"); with no device, from FLOPs.
DppCostModel cost_model(const StrategyRequest& request) {
  const ModelShape& model = request.model;
  const double layers = static_cast<double>(model.layers);
  const double t = static_cast<double>(kReferenceTokens);
  DppCostModel cost;
  cost.recompute = request.training.recompute == Recompute::kFull;
  if (request.kernels == nullptr) {
    const std::int64_t pairs = kReferenceTokens * (kReferenceTokens + 1) / 2;
    cost.forward.alpha1 = layers * attention_forward_flops(model, pairs).value / kNominalFlopsPerSecond / (t * t);
    cost.forward.alpha2 = layers * layer_matmul_flops(model, 1).value / kNominalFlopsPerSecond;
    cost.backward.alpha1 = 2.5 * cost.forward.alpha1;
    cost.backward.alpha2 = 2 * cost.forward.alpha2;
    return cost;
  }
  const KernelModel& kernels = *request.kernels;
  const AttentionPieceSize piece{kReferenceTokens, kReferenceTokens, kReferenceTokens * (kReferenceTokens + 1) / 2};
  const std::span<const AttentionPieceSize> pieces(&piece, 1);
  const auto per_square = [&](const Estimate& estimate) { return layers * estimate.seconds / (t * t); };
  cost.forward.alpha1 = per_square(kernels.attention_forward(pieces, model.q_heads, model.kv_heads, model.head_dim));
  cost.backward.alpha1 = per_square(kernels.attention_backward(pieces, model.q_heads, model.kv_heads, model.head_dim));
  linear_seconds(kernels, model, cost.forward.alpha2, cost.backward.alpha2);
  // Element-wise traffic per token of a layer: about 12 D + 6 F elements read or written forward, twice that backward.
  const Bytes touched{2 * kReferenceTokens * (12 * model.hidden + 6 * model.ffn)};
  const double elementwise = kernels.elementwise(touched).seconds / t;
  cost.forward.alpha2 = layers * (cost.forward.alpha2 + elementwise);
  cost.backward.alpha2 = layers * (cost.backward.alpha2 + 2 * elementwise);
  all_to_all_seconds(request, cost.forward);
  all_to_all_seconds(request, cost.backward);
  // What a launch costs however few rows it has: the host's time or the smallest kernel's, whichever is longer.
  const double least = std::max(kernels.launch_seconds(), kernels.elementwise(Bytes{1}).seconds);
  cost.forward.beta1 = layers * kForwardLaunches * least;
  cost.backward.beta1 = layers * kBackwardLaunches * least;
  const StageTraffic traffic = chunk_weight_traffic(request, stage_layers(model.layers, request.degrees.pp));
  cost.forward.zero3 = traffic.forward_seconds;
  cost.backward.zero3 = traffic.backward_seconds;
  return cost;
}

// Tokens of all chunks that stage 0 may keep alive, from device memory: what is left after the stage's states, one
// layer's working set and gathered weights, over the bytes that a token keeps (checkpoints, and K and V of slices; or
// all activations without recompute). 0 (no limit) where memory is not known.
std::int64_t window_tokens(const StrategyRequest& request, std::int64_t chunk_tokens) {
  if (request.memory_limit_bytes <= 0) return 0;
  const ModelShape& model = request.model;
  const std::int64_t sp = request.degrees.sp;
  const std::int64_t layers = (model.layers + request.degrees.pp - 1) / request.degrees.pp;
  const std::int64_t parameters = layers * layer_parameters(model).total() + embedding_parameters(model);
  const std::int64_t sharded = request.training.zero_stage == 3 ? sp : 1;
  const std::int64_t working = chunk_tokens / sp * (2 * activation_bytes_per_row(model, true));
  const std::int64_t left =
      request.memory_limit_bytes - 16 * parameters / sharded - working - 4 * layer_parameters(model).total();
  const bool full = request.training.recompute == Recompute::kFull;
  const std::int64_t kept =
      full ? checkpoint_bytes_per_row(model) + 8 * model.kv_width() : activation_bytes_per_row(model, true);
  return std::max<std::int64_t>(1, left / (layers * kept) * sp);
}

Planned finish(const StrategyRequest& request, Applicable<PipelinePlan> plan) {
  if (!plan) return tl::unexpected(plan.error());
  check_plan(*plan, *request.batch);
  PlannedStep step;
  step.schedule = pipeline_schedule(request, *plan);
  step.plan = [plan = std::make_shared<const PipelinePlan>(std::move(*plan)), model = request.model] {
    return pipeline_plan_json(*plan, model);
  };
  return step;
}

// Heads must be shared by the ranks of a stage as Ulysses shares them.
std::string heads_reason(const StrategyRequest& request) {
  const std::int64_t sp = request.degrees.sp;
  const ModelShape& model = request.model;
  const bool kv_fits = model.kv_heads % sp == 0 || sp % model.kv_heads == 0;
  if (model.q_heads % sp == 0 && kv_fits) return "";
  return "the heads (" + std::to_string(model.q_heads) + " query, " + std::to_string(model.kv_heads) +
         " KV) cannot be shared by sp " + std::to_string(sp) + " ranks";
}

Planned plan_sliced(const StrategyRequest& request, std::int32_t slices) {
  if (const std::string reason = heads_reason(request); !reason.empty()) return tl::unexpected(reason);
  SlicedOptions options;
  options.micro_batch_sequences = request.training.micro_batch_sequences;
  options.slices = slices;
  if (request.options.value("slice_policy", "equal-tokens") == "equal-time") options.policy = SlicePolicy::kEqualTime;
  return finish(request, plan_sliced_1f1b(*request.batch, request.model.layers, layout_of(request), cost_model(request),
                                          options));
}

// Keys that say how a plan is made; beside a plan that is given they would say nothing.
constexpr std::array<const char*, 2> kPlannerKeys = {"chunk_tokens", "max_slices"};

Applicable<PipelinePlan> dynamic_plan(const StrategyRequest& request) {
  const DppCostModel cost = cost_model(request);
  const PipelineLayout layout = layout_of(request);
  if (request.options.contains("assignment")) {
    return assigned_pipeline(request.options["assignment"], *request.batch, request.model.layers, layout, cost);
  }
  DppOptions options;
  options.chunk_tokens =
      request.options.value("chunk_tokens", std::max<std::int64_t>(request.batch->context_tokens, 1));
  options.window_tokens = window_tokens(request, options.chunk_tokens);
  options.max_slices = request.options.value("max_slices", 0);
  return plan_dpp(*request.batch, request.model.layers, layout, cost, options);
}

Planned plan_dynamic(const StrategyRequest& request) {
  if (const std::string reason = heads_reason(request); !reason.empty()) return tl::unexpected(reason);
  const Applicable<PipelinePlan> plan = dynamic_plan(request);
  Planned planned = finish(request, plan);
  if (!planned) return planned;
  planned->pinned = [options = request.options, assignment = pipeline_assignment_of(*plan)] {
    Json fixed = options;
    for (const char* key : kPlannerKeys) fixed.erase(key);
    fixed["assignment"] = assignment;
    return fixed;
  };
  return planned;
}

void check_pipeline_options(JsonReader& reader) { reader.choice("gather", {"auto", "chunk", "step"}); }

Strategy pipeline_strategy(std::string name, std::string baseline) {
  Strategy strategy;
  strategy.name = std::move(name);
  strategy.baseline = std::move(baseline);
  strategy.family = StrategyFamily::kPipeline;
  return strategy;
}

}  // namespace

void add_pipeline_strategies(std::vector<Strategy>& list) {
  Strategy one = pipeline_strategy("1f1b", "1f1b");
  one.option_keys = {"gather"};
  one.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    check_pipeline_options(reader);
  };
  one.plan = [](const StrategyRequest& request) { return plan_sliced(request, 1); };
  list.push_back(one);

  Strategy sliced = pipeline_strategy("seq1f1b", "1f1b");
  sliced.option_keys = {"gather", "slices", "slice_policy"};
  sliced.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    check_pipeline_options(reader);
    reader.integer("slices", 1, 1024);
    reader.choice("slice_policy", {"equal-tokens", "equal-time"});
  };
  sliced.plan = [](const StrategyRequest& request) { return plan_sliced(request, request.options.value("slices", 4)); };
  list.push_back(sliced);

  Strategy dpp = pipeline_strategy("dpp", "seq1f1b");
  dpp.option_keys = {"gather", "chunk_tokens", "max_slices", "assignment"};
  dpp.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    check_pipeline_options(reader);
    reader.integer("chunk_tokens", 1, kMostTokens);
    reader.integer("max_slices", 1, 4096);
    if (const Json* assignment = reader.find("assignment")) {
      check_pipeline_assignment(*assignment, file, reader.child_path("assignment"), errors);
      for (const char* key : kPlannerKeys) {
        if (reader.has(key)) reader.add_error(key, "says how to plan beside an \"assignment\"", "one of the two");
      }
    }
  };
  dpp.plan = plan_dynamic;
  dpp.note = "recompute is fixed for the whole step; chunk-level adaptive checkpointing (section 4.4) is not built yet";
  list.push_back(dpp);
}

}  // namespace longhaul
