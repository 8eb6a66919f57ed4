// A picture of a cluster as a stand-alone SVG: nodes with their GPUs, the fabric inside a node, NICs, and the network.
//
// Shows up to four nodes, then how many more there are. Ignores: rates of single links that differ inside a class.
#pragma once

#include <string>

#include "sim/cluster/cluster.h"

namespace longhaul {

// A whole SVG document with title and description.
std::string topology_svg(const Cluster& cluster);

}  // namespace longhaul
