#include "sim/core/sim_time.h"

#include "sim/core/error.h"

namespace longhaul {

void throw_time_limit() {
  throw LimitError("simulated time passes 106 days; make the step smaller or the cluster larger");
}

}  // namespace longhaul
