#include "sim/strategies/sequence_parallel/plan_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

const char* topology_name(GroupTopology topology) {
  switch (topology) {
    case GroupTopology::kInsideNode:
      return "inside-node";
    case GroupTopology::kWholeNodes:
      return "whole-nodes";
    case GroupTopology::kStraddles:
      return "straddles";
  }
  return "";
}

nlohmann::ordered_json group_json(const SpPlan& plan, const SpGroup& group, const SpJsonInputs& inputs) {
  const std::int64_t first = inputs.first_rank + group.first_rank;
  std::int64_t pairs = 0;
  for (const std::int64_t sequence : group.sequences) {
    pairs += inputs.sequence_pairs[static_cast<std::size_t>(sequence)];
  }
  // The member with the fewest group members on its node sends most off the node.
  std::int64_t on_node = plan.group_size;
  for (std::int64_t local = 0; local < plan.group_size; ++local) {
    on_node = std::min(on_node, members_on_node(first, plan.group_size, inputs.gpus_per_node, local));
  }
  const AllToAllVolume volume =
      all_to_all_volume(plan.heads, group.rows_per_rank, inputs.head_dim, inputs.bytes_per_element, on_node);
  return {{"first_rank", group.first_rank},
          {"ranks", plan.group_size},
          {"sequences", group.sequences},
          {"rows_per_rank", group.rows_per_rank},
          {"pairs_per_head", pairs},
          {"pair_heads_per_rank", pairs * plan.heads.q_heads},
          {"topology", topology_name(group_topology(first, plan.group_size, inputs.gpus_per_node))},
          {"all_to_all_bytes_per_rank_layer",
           {{"buffer", volume.buffer()}, {"leaves_gpu", volume.leaves_gpu}, {"leaves_node_max", volume.leaves_node}}}};
}

}  // namespace

nlohmann::ordered_json plan_json(const SpPlan& plan, const SpJsonInputs& inputs) {
  auto groups = nlohmann::ordered_json::array();
  for (const SpGroup& group : plan.groups) groups.push_back(group_json(plan, group, inputs));
  auto ranks = nlohmann::ordered_json::array();
  for (std::int64_t rank = 0; rank < plan.ranks; ++rank) {
    const std::int64_t local = plan.local_rank(rank);
    auto rows = nlohmann::ordered_json::array();
    std::int64_t tokens = 0;
    for (const SequenceRows& run : plan.rows[static_cast<std::size_t>(rank)]) {
      rows.push_back(
          {{"sequence", run.sequence}, {"first_token", run.first}, {"tokens", run.tokens}, {"padding", run.padding}});
      tokens += run.tokens;
    }
    ranks.push_back({{"rank", rank},
                     {"tokens", tokens},
                     {"first_q_head", plan.heads.first_q_head(local)},
                     {"first_kv_head", plan.heads.first_kv_head(local)},
                     {"rows", rows}});
  }
  return {{"ranks", plan.ranks},
          {"group_size", plan.group_size},
          {"q_heads_per_rank", plan.heads.q_heads},
          {"kv_heads_per_rank", plan.heads.kv_heads},
          {"kv_replication", plan.heads.kv_replication},
          {"groups", groups},
          {"per_rank", ranks}};
}

}  // namespace longhaul
