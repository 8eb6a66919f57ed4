// Two things that are read from the measured times themselves: how long a rank's compute stream stood still beside its
// communication, and how far a run drifted.
//
// Units: seconds. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "validate/device/run_record.h"

namespace longhaul {

// By repeat: the time in which a collective of `rank` was on its stream and no op of its compute stream ran. It holds
// waits for other members: a device cannot tell them from the transfer. Empty if the rank has no timed collectives.
std::vector<double> idle_in_communication(const RunRecord& record, std::int32_t rank);

// Median of the last third over median of the first, less 1; 0 below six values.
double drift_of(std::span<const double> seconds);

}  // namespace longhaul
