#include "tests/unit/device/device_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace longhaul {
namespace {

ModelShape model_of(const DeviceCase& of) {
  ModelShape model;
  model.name = "device-case";
  model.head_dim = of.head_dim;
  model.q_heads = of.q_heads;
  model.kv_heads = of.kv_heads;
  model.hidden = model.q_width() * of.hidden_factor;
  model.ffn = 4 * model.hidden;
  model.layers = of.layers;
  model.vocab = of.vocab;
  model.qkv_bias = of.qkv_bias;
  model.qk_norm = of.qk_norm;
  return model;
}

std::shared_ptr<const Batch> batch_of(const DeviceCase& of, ObjectiveKind objective, std::int64_t block) {
  auto batch = std::make_shared<Batch>();
  if (objective == ObjectiveKind::kBlockDiffusion) batch->objective = {objective, block};
  for (const std::vector<std::int64_t>& documents : of.sequences) {
    Sequence sequence;
    for (const std::int64_t tokens : documents) {
      sequence.documents.push_back(static_cast<DocumentId>(batch->documents.size()));
      sequence.tokens += tokens;
      batch->documents.push_back(tokens);
    }
    batch->context_tokens = std::max(batch->context_tokens, sequence.tokens);
    batch->sequences.push_back(std::move(sequence));
  }
  return batch;
}

StrategyRequest request_of(const DeviceCase& of, const Strategy& strategy, const Degrees& degrees) {
  StrategyRequest request;
  request.model = model_of(of);
  request.batch = batch_of(of, strategy.objective, 4);
  request.degrees = degrees;
  request.ranks = degrees.ranks();
  request.gpus_per_node = request.ranks;
  request.training.zero_stage = of.zero_stage;
  request.training.recompute = of.recompute;
  return request;
}

const Strategy& strategy_of(const std::string& name) {
  const Strategy* strategy = find_strategy(name);
  if (strategy == nullptr) throw std::runtime_error("no strategy is called " + name);
  return *strategy;
}

}  // namespace

std::shared_ptr<const Schedule> schedule_of(const DeviceCase& of) {
  const Strategy& strategy = strategy_of(of.strategy);
  Degrees degrees;
  switch (strategy.family) {
    case StrategyFamily::kData:
      degrees.dp = of.ranks;
      break;
    case StrategyFamily::kContext:
      degrees.cp = of.ranks;
      break;
    case StrategyFamily::kSequence:
      degrees.sp = of.ranks;
      break;
    case StrategyFamily::kPipeline:
      degrees.pp = 2;
      degrees.sp = of.ranks / 2;
      break;
  }
  const StrategyRequest request = request_of(of, strategy, degrees);
  if (const auto applicable = check_applicable(strategy, request); !applicable) {
    throw std::runtime_error(of.strategy + ": " + applicable.error());
  }
  Planned planned = strategy.plan(request);
  if (!planned) throw std::runtime_error(of.strategy + ": " + planned.error());
  return planned->schedule;
}

std::shared_ptr<const Schedule> undistributed_of(const DeviceCase& of) {
  const bool diffusion = strategy_of(of.strategy).objective == ObjectiveKind::kBlockDiffusion;
  const Strategy& strategy = strategy_of(diffusion ? "bd-offset-cp" : "data-parallel");
  Planned planned = strategy.plan(request_of(of, strategy, {}));
  if (!planned) throw std::runtime_error("undistributed: " + planned.error());
  return planned->schedule;
}

const std::vector<std::string>& device_strategies() {
  static const std::vector<std::string> names = {"flashcp",    "basp",    "csbp",         "dpp",  "allgather-cp",
                                                 "per-doc-cp", "ulysses", "bd-offset-cp", "1f1b", "seq1f1b"};
  return names;
}

}  // namespace longhaul
