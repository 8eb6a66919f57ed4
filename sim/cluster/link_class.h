// A kind of link: its rate, efficiency and latency, which all links of the kind share.
#pragma once

#include <string>

#include "sim/core/sim_time.h"
#include "sim/core/units.h"

namespace longhaul {

enum class LinkScope { kIntraNode, kInterNode };

struct LinkClass {
  std::string name;  // "nvlink", "nic", "pcie", "leaf", "nvswitch", "spine"
  BytesPerSecond rated;
  double efficiency = 1;
  Time latency;  // one traversal
  LinkScope scope = LinkScope::kIntraNode;

  BytesPerSecond effective() const { return {rated.value * efficiency}; }
};

}  // namespace longhaul
