// The schedule of a step in which groups of cp contiguous ranks share each sequence: replicas, groups, shapes.
#pragma once

#include <functional>
#include <memory>

#include "sim/strategies/step/replicas.h"

namespace longhaul {

// Fills the shapes of group member `member` for micro-batch number `micro` (chunk x dp + replica, in ascending order).
using SetContextShape = std::function<void(ShapeSet& shape, const StepBuilder& step, int micro, int member)>;

// `role`: the scheme's group role, asked for after the scheme was declared.
std::shared_ptr<const Schedule> context_schedule(const StrategyRequest& request, AttentionScheme& scheme,
                                                 const std::function<GroupRole()>& role,
                                                 const SetContextShape& set_shape);

}  // namespace longhaul
