// Which part of the model's parameters a flat tensor holds, told by its kind's name and the rank's place in its group.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

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

}  // namespace longhaul
