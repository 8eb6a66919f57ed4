// Chrome trace JSON of a recorded timeline, for Perfetto and chrome://tracing.
//
// One process a rank, one thread a stream: a stream is serial, so its X events never overlap. `ts` and `dur` are
// microseconds as decimals, exact to the picosecond; `args` repeats start and duration as integer picoseconds. Memory
// is a C counter a rank. Ignores: waits between streams (no flow arrows), links.
#pragma once

#include <ostream>

#include "sim/timeline/traced.h"

namespace longhaul {

// Streams the events out; nothing is held back but the current one.
void write_chrome_trace(std::ostream& out, const Traced& traced);

}  // namespace longhaul
