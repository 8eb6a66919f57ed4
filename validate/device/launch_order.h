// One order in which a host thread launches the ops of all ranks: a topological order common to them all.
//
// Free of deadlock by construction: every op is launched after all ops before it in its own program, a collective is
// launched at once for all members that take part, and the order is total, so any two members meet any two calls in the
// same order. Processes that each launch for some of the ranks walk the same order and leave out the others.
// Ranks take turns, one op each, so that no device waits for another's launches.
#pragma once

#include <cstdint>
#include <vector>

#include "validate/device/programs.h"

namespace longhaul {

struct LaunchPlace {
  std::int32_t rank = 0, position = 0;
  bool operator==(const LaunchPlace&) const = default;
};

// One op of one rank, or a collective at all members for which it is not empty, in member order.
struct Launch {
  std::int32_t call = -1;  // -1: not a collective, or one that is empty for this rank
  std::vector<LaunchPlace> places;
};

// Throws DeadlockError (validate/cpu/errors.h), with every blocked rank's op, if there is no such order.
std::vector<Launch> launch_order(const Schedule& schedule, const Programs& programs);

}  // namespace longhaul
