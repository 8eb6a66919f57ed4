// Which part of the model's parameters a flat tensor holds, told by its kind's name and the rank's place in its group;
// and the parameter tensors that the unit's range is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/schedule/schedule.h"
#include "validate/cpu/parameters.h"

namespace longhaul {

// Elements begin .. begin + count - 1 of a unit's flat range; those past its end are padding.
struct UnitRange {
  UnitKind unit = UnitKind::kLayer;
  std::int64_t layer = 0;  // 0 unless the unit is a layer
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// For a kind called "<unit>_<whole>" the range from 0; for "<unit>_<shard>" the share of the rank in its group of role
// "zero" (member i begins at i x count). Nothing for any other name.
std::optional<UnitRange> unit_range(const Schedule& schedule, int rank, const TensorId& tensor, std::string_view whole,
                                    std::string_view shard);

// One parameter tensor: elements [begin, end) of its unit.
struct ParameterGroup {
  std::string name;
  UnitKind unit = UnitKind::kLayer;
  std::int64_t begin = 0, end = 0;
};
// Every element of every unit once, in order: "embedding"; "attention_norm", "qkv", "output", "ffn_norm", "gate_up",
// "down", "extra" (bias of QKV and norms of Q and K); "final_norm", "head". None is empty.
std::vector<ParameterGroup> parameter_groups(const ModelShape& model);

}  // namespace longhaul
