// The steps in which a cluster takes on the what-ifs of its topology: links down, then the routes that are left, then
// rates, latencies and background traffic in the order of the list.
#pragma once

#include <memory>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/cluster/touched_routes.h"

namespace longhaul {

// Marks links that are down. Errors: every what-if, of whatever kind, that names no link, no rail or no rank.
void mark_down(const Cluster& cluster, std::vector<Link>& links, Errors& errors);

// The profiles of parts with links down.
std::shared_ptr<TouchedRoutes> touched_routes(const Cluster& cluster);

// Errors: ranks that links being down leave without a way to each other. One pair of every kind of places is tried.
void check_ways(const Cluster& cluster, Errors& errors);

// Scales rates and latencies, takes background traffic off the rates. Errors: nothing left of a link.
void change_links(const Cluster& cluster, std::vector<Link>& links, Errors& errors);

}  // namespace longhaul
