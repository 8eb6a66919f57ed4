// How long one rank's kernels take when nobody else runs and every transfer is over at once: what virtual ranks time.
//
// Streams, events and the host's launches as in sim/executor/simulate.h; collectives take no time and wait for nobody;
// kernels of two streams do not slow each other. Units: Time. Ignores the launch queue's depth.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/core/sim_time.h"
#include "sim/schedule/schedule.h"

namespace longhaul {

// `duration` is asked for every op that is neither empty nor a collective, with its position in the program.
Time rank_alone(const Schedule& schedule, std::int32_t rank, Time launch,
                const std::function<Time(const OpInstance& at, std::int32_t position)>& duration);

}  // namespace longhaul
