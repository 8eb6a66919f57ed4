#include "sim/schedule/checks.h"

#include <fmt/format.h>

#include "sim/core/error.h"
#include "sim/schedule/check_parts.h"

namespace longhaul {

void Violations::count_op() {
  if (++result_.ops <= options_.max_ops) return;
  throw LimitError(fmt::format("the schedule holds more than {} ops, the most that its checks take; use fewer ranks",
                               options_.max_ops));
}

CheckResult check_schedule(const Schedule& schedule, const CheckOptions& options) {
  CheckResult result;
  Violations violations(result, options);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    check_rank(schedule, static_cast<int>(rank), violations);
  }
  check_calls(schedule, violations);
  return result;
}

}  // namespace longhaul
