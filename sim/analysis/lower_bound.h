// A step time that no simulation of a schedule can be below, found without simulating it.
//
// The compute stream of a rank runs its kernels one after another, and none runs faster than alone (slow-down factors
// are at least 1), so the step takes at least the sum of the kernels' times alone on the busiest rank. Communication,
// launches and waits are left out: the bound is not tight where they are exposed.
#pragma once

#include "sim/executor/models.h"

namespace longhaul {

Time compute_lower_bound(const Schedule& schedule, const OpDurations& durations);

}  // namespace longhaul
