// How much longer the wires of a cluster take than those that NCCL's constants were fitted on.
//
// The fitted steps and hops (sim/network/nccl) hold one traversal of the link that they cross. A topology file, or a
// what-if, that gives a link another latency makes every step over it longer or shorter by the difference. On the
// shipped topologies all differences are zero.
// Ignores: that a step of Simple waits for room in the receiver's buffer, a trip back.
#pragma once

#include <span>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/comm_group.h"

namespace longhaul {

// One step over NVLink, through the switch where there is one. NCCL 2.28 graph/tuning.cc, latency table, LL: ring step
// over NVLink 0.6 us.
inline constexpr double kFittedNvLinkUs = 0.6;
// One step over the network, out of one NIC and into another. The same table: 2.7 us.
inline constexpr double kFittedNetworkUs = 2.7;

class WireLatency {
 public:
  explicit WireLatency(const Cluster& cluster);

  // Of one message, us.
  double message(int from, int to) const;
  // Of a message over these links, in their order.
  double along(std::span<const LinkId> links) const;
  // Whether all links of a class have the same: messages over links of the same classes then do too.
  bool by_class() const { return by_class_; }
  bool none() const { return none_; }  // all of them are zero

  // Of whole collectives, us: along the longest chain of steps that wait for each other.
  // A ring, `rounds` times around (2 for all-reduce, else 1) less one hop each: D - 1 of D boundaries between domains,
  // or n - 1 of n hops in one domain; the shortest one is left out, as a step waits for the slowest chain before it.
  double ring(const CommGroup& group, int rounds) const;
  // Up and down a chain inside each domain and the two trees over domains.
  double tree(const CommGroup& group) const;
  // Members to owners through the switch of a domain and back: `trips` of them.
  double inside(const CommGroup& group, int trips) const;
  // Up and down the two trees over domains alone (NVLSTree); to the root of SHARP's tree and back.
  double tree_between(const CommGroup& group) const;
  double sharp_between(const CommGroup& group) const;
  double pat(const CommGroup& group) const;

 private:
  // Up and down over the domains for one channel; `chains`: each domain's chain comes first.
  double tree_of(const CommGroup& group, std::size_t channel, bool chains) const;

  const Cluster* cluster_;
  std::vector<double> extra_us_;  // by link
  bool none_ = true;              // all of them are zero
  bool by_class_ = true;
};

}  // namespace longhaul
