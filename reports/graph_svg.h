// A picture of an explicit graph: its vertices in rows by kind, its links between them.
#pragma once

#include <string>

#include "sim/cluster/cluster.h"

namespace longhaul {

// Shows the first vertices of a long row, then how many more there are; links of what is not shown are left out.
std::string graph_svg(const Cluster& cluster);

}  // namespace longhaul
