#include "sim/strategies/registry.h"

#include "sim/strategies/families.h"

namespace longhaul {

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> all = [] {
    std::vector<Strategy> list;
    add_sequence_parallel_strategies(list);
    add_context_parallel_strategies(list);
    add_ring_strategies(list);
    add_dispatch_strategies(list);
    add_dcp_strategy(list);
    add_pipeline_strategies(list);
    add_block_diffusion_strategies(list);
    return list;
  }();
  return all;
}

const Strategy* find_strategy(const std::string& name) {
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == name) return &strategy;
  }
  return nullptr;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.push_back(strategy.name);
  return names;
}

}  // namespace longhaul
