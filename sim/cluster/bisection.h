// What a part of a cluster can carry from one half of its GPUs to the other: the exact minimum cut, one way, at
// effective rates, with what-ifs.
//
// Without told-apart spines the links of a cluster are trees of switches over the GPUs, whose minimum cut follows from
// the choice of side at each switch, from the leaves up. Told-apart spines (`hash`) that are all alike may stand on one
// side together: the smallest set that a minimum cut can have does not change when alike switches change places. Where
// what-ifs make them differ, and in explicit graphs, the cut is found by Boost's push-relabel maximum flow.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster/cluster.h"

namespace longhaul {

// Where the first half of ranks first..last-1 ends: at a node's border if they are of several.
int middle_rank(const Cluster& cluster, int first, int last);
// The first and the second half of ranks first..last-1; the others take no part. `with_network` false: NVLink only.
BytesPerSecond bisection(const Cluster& cluster, int first, int last, bool with_network);
// The same by maximum flow, whatever the cluster. O(V^2 sqrt(E)): for small ones.
BytesPerSecond bisection_by_flow(const Cluster& cluster, int first, int last, bool with_network);

struct LevelBisection {
  std::string level;  // "node", "NVLink domain", "leaf", "pod", "cluster"
  int gpus = 0;       // of the first such part
  BytesPerSecond rate;
};
// From the smallest part to the whole, which is the last; parts as large as the one before are left out.
std::vector<LevelBisection> bisections(const Cluster& cluster);

}  // namespace longhaul
