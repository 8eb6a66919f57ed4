// The tensors that a rank holds before the step begins, and their first values.
#include "validate/cpu/resident.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string_view>

#include "validate/cpu/errors.h"
#include "validate/cpu/executor.h"
#include "validate/cpu/parameters.h"

namespace longhaul {
namespace {

std::optional<UnitKind> unit_of(std::string_view prefix) {
  for (const UnitKind unit : {UnitKind::kEmbedding, UnitKind::kLayer, UnitKind::kHead}) {
    if (prefix == to_string(unit)) return unit;
  }
  return std::nullopt;
}

}  // namespace

std::optional<UnitRange> unit_range(const Schedule& schedule, int rank, const TensorId& tensor, std::string_view whole,
                                    std::string_view shard) {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(tensor.kind)];
  const std::size_t underscore = kind.name.find('_');
  if (underscore == std::string::npos || kind.rows != kFlat) return std::nullopt;
  const std::optional<UnitKind> unit = unit_of(std::string_view(kind.name).substr(0, underscore));
  const std::string_view rest = std::string_view(kind.name).substr(underscore + 1);
  if (!unit || (rest != whole && rest != shard)) return std::nullopt;
  UnitRange range;
  range.unit = *unit;
  range.layer = *unit == UnitKind::kLayer ? tensor.layer : 0;
  range.count = kind.flat_rows * kind.columns;
  if (rest == shard) {
    for (std::size_t role = 0; role < schedule.roles.size(); ++role) {
      if (schedule.roles[role] != "zero") continue;
      if (schedule.ranks[static_cast<std::size_t>(rank)].groups[role] < 0) continue;
      range.begin = range.count * schedule.member_index(rank, static_cast<GroupRole>(role));
    }
  }
  return range;
}

void add_resident_tensors(Machine& machine, int rank, std::uint64_t parameter_seed) {
  const Schedule& schedule = machine.schedule;
  const RankInfo& info = schedule.ranks[static_cast<std::size_t>(rank)];
  OpInstance start;  // a place outside the layers: the layer offset of a resident tensor is its layer
  start.rank = rank;
  start.chunk = kNoChunk;
  for (const TensorRef& ref : schedule.programs[static_cast<std::size_t>(info.program)].resident) {
    TensorData tensor = machine.make_tensor(rank, resolve(start, ref));
    const MemoryCategory category = schedule.tensors[static_cast<std::size_t>(ref.kind)].category;
    if (category == MemoryCategory::kParameters) {
      const auto range = unit_range(schedule, rank, tensor.id, "params", "param_shard");
      if (!range) {
        throw ScheduleError(fmt::format("rank {}: no values for resident {}", rank, tensor_name(schedule, tensor.id)));
      }
      const std::vector<double> unit = unit_values(schedule.model, range->unit, range->layer, parameter_seed);
      tensor.values = unit_slice(unit, range->begin, range->count);
    } else if (category == MemoryCategory::kGradients || category == MemoryCategory::kOptimizer) {
      tensor.values.assign(tensor.values.size(), 0.0);
    } else {
      throw ScheduleError(fmt::format("rank {}: resident {} is neither parameter, gradient nor optimizer state", rank,
                                      tensor_name(schedule, tensor.id)));
    }
    const std::string name = tensor_name(schedule, tensor.id);
    if (!machine.ranks[static_cast<std::size_t>(rank)].add(std::move(tensor))) {
      throw ScheduleError(fmt::format("rank {}: resident {} twice", rank, name));
    }
  }
}

std::vector<ParameterGroup> parameter_groups(const ModelShape& model) {
  std::vector<ParameterGroup> groups;
  const auto add = [&](const char* name, UnitKind unit, std::int64_t count) {
    if (count == 0) return;
    const bool follows = !groups.empty() && groups.back().unit == unit;
    const std::int64_t begin = follows ? groups.back().end : 0;
    groups.push_back({name, unit, begin, begin + count});
  };
  const LayerParameters layer = layer_parameters(model);
  add("embedding", UnitKind::kEmbedding, embedding_parameters(model));
  add("attention_norm", UnitKind::kLayer, layer.attention_norm);
  add("qkv", UnitKind::kLayer, layer.qkv);
  add("output", UnitKind::kLayer, layer.output);
  add("ffn_norm", UnitKind::kLayer, layer.ffn_norm);
  add("gate_up", UnitKind::kLayer, layer.gate_up);
  add("down", UnitKind::kLayer, layer.down);
  add("extra", UnitKind::kLayer, layer.extra);
  add("final_norm", UnitKind::kHead, model.hidden);
  if (!model.tied_embeddings) add("head", UnitKind::kHead, model.vocab * model.hidden);
  return groups;
}

}  // namespace longhaul
