#include "sim/strategies/pipeline/stage_weights.h"

#include <algorithm>
#include <numeric>

#include "sim/core/integers.h"
#include "sim/network/collectives.h"

namespace longhaul {
namespace {

constexpr std::int64_t kBytesPerElement = 2;  // weights and gradients in bf16 (step.h)

struct UnitSeconds {
  double gather = 0;
  double reduce = 0;
};

UnitSeconds unit_seconds(Collectives& collectives, const std::vector<int>& ranks, std::int64_t parameters) {
  const auto members = static_cast<std::int64_t>(ranks.size());
  const Bytes shard{kBytesPerElement * ceil_div(parameters, members)};
  return {collectives.all_gather(ranks, shard).alone.seconds(),
          collectives.reduce_scatter(ranks, shard).alone.seconds()};
}

}  // namespace

bool gathers_once(const StrategyRequest& request, const std::vector<std::int64_t>& stage_layers) {
  const std::string choice = request.options.value("gather", "auto");
  if (choice != "auto") return choice == "step";
  const std::int64_t layers = *std::max_element(stage_layers.begin(), stage_layers.end());
  const std::int64_t parameters = layers * layer_parameters(request.model).total() +
                                  std::max(embedding_parameters(request.model), head_parameters(request.model));
  return request.memory_limit_bytes > 0 && 40 * parameters <= request.memory_limit_bytes;
}

StageTraffic chunk_weight_traffic(const StrategyRequest& request, const std::vector<std::int64_t>& stage_layers) {
  StageTraffic slowest;
  const int sp = request.degrees.sp;
  if (request.training.zero_stage != 3 || sp == 1 || request.cluster == nullptr) return slowest;
  if (gathers_once(request, stage_layers)) return slowest;
  Collectives collectives(*request.cluster);
  std::vector<int> ranks(static_cast<std::size_t>(sp));
  for (std::size_t stage = 0; stage < stage_layers.size(); ++stage) {
    std::iota(ranks.begin(), ranks.end(), static_cast<int>(stage) * sp);
    const auto layers = static_cast<double>(stage_layers[stage]);
    const UnitSeconds layer = unit_seconds(collectives, ranks, layer_parameters(request.model).total());
    StageTraffic traffic{layers * layer.gather, layers * (layer.gather + layer.reduce)};
    if (stage == 0) {
      const UnitSeconds embedding = unit_seconds(collectives, ranks, embedding_parameters(request.model));
      traffic.forward_seconds += embedding.gather;
      traffic.backward_seconds += embedding.reduce;
    }
    if (stage + 1 == stage_layers.size()) {
      const UnitSeconds head = unit_seconds(collectives, ranks, head_parameters(request.model));
      traffic.forward_seconds += head.gather + head.reduce;
    }
    if (traffic.forward_seconds + traffic.backward_seconds > slowest.forward_seconds + slowest.backward_seconds) {
      slowest = traffic;
    }
  }
  return slowest;
}

}  // namespace longhaul
