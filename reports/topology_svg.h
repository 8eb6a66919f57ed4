// A picture of a cluster as a stand-alone SVG: one node in detail (GPUs, NVLink, PCIe, NICs), its NVLink domain, the
// switches above it, counts of everything that is not drawn, and the rates of each kind of link.
//
// The node drawn is the first with a link down, else the first that what-ifs change, else the first. Same cluster, same
// bytes.
#pragma once

#include <string>

#include "sim/cluster/cluster.h"

namespace longhaul {

// A whole SVG document with title and description.
std::string topology_svg(const Cluster& cluster);

}  // namespace longhaul
