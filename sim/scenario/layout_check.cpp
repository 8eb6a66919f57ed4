#include "sim/scenario/layout_check.h"

#include <fmt/format.h>

#include "sim/core/invariant.h"

namespace longhaul {

std::optional<InputError> degrees_error(const LayoutDegrees& degrees, std::int64_t gpus, const StrategyEntry& entry) {
  if (degrees.product() == gpus) return std::nullopt;
  return InputError{
      entry.file, entry.path,
      fmt::format("the layout of \"{}\", tp {} x pp {} x cp {} x sp {} x dp {}, makes {} ranks", entry.label,
                  degrees.tp, degrees.pp, degrees.cp, degrees.sp, degrees.dp, degrees.product()),
      fmt::format("degrees that multiply to the {} GPUs", gpus), ""};
}

std::optional<InputError> fill_error(std::int64_t sequences, std::int64_t dp, std::int64_t micro_batch_sequences,
                                     const StrategyEntry& entry) {
  LH_ASSERT(dp >= 1 && micro_batch_sequences >= 1, "dp {}, micro-batch {}", dp, micro_batch_sequences);
  const std::int64_t unit = dp * micro_batch_sequences;
  if (sequences > 0 && sequences % unit == 0) return std::nullopt;
  const std::int64_t below = sequences / unit * unit;
  const std::string counts = below > 0 ? fmt::format("{} or {}", below, below + unit) : fmt::format("{}", unit);
  return InputError{entry.file, entry.path,
                    fmt::format("{} sequences do not fill dp {} x micro-batches of {} for \"{}\"", sequences, dp,
                                micro_batch_sequences, entry.label),
                    fmt::format("{} sequences", counts), ""};
}

}  // namespace longhaul
