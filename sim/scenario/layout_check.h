// Checks of a layout against the GPU count and the batch, for whoever resolves the layout of a strategy entry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/scenario/study.h"

namespace longhaul {

// All degrees of a resolved layout, each at least 1.
struct LayoutDegrees {
  std::int64_t tp = 1, pp = 1, cp = 1, sp = 1, dp = 1, ep = 1;
  std::int64_t product() const { return tp * pp * cp * sp * dp; }  // ep lies within dp
};

// An error at `entry` if the degrees do not multiply to `gpus`.
std::optional<InputError> degrees_error(const LayoutDegrees& degrees, std::int64_t gpus, const StrategyEntry& entry);

// An error at `entry` if `sequences` is not a positive multiple of dp x micro_batch_sequences; it names the nearest
// counts below and above.
std::optional<InputError> fill_error(std::int64_t sequences, std::int64_t dp, std::int64_t micro_batch_sequences,
                                     const StrategyEntry& entry);

}  // namespace longhaul
