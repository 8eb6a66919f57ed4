// Collectives as NCCL runs them, turned into transfers: bytes a link (exact) and latency by hop class.
//
// * all-gather, reduce-scatter, broadcast: rings. all-reduce: rings, or a tree over several nodes, whichever is faster.
// * The ring set of a group uses the NIC of every member, as NCCL's channels do: each node boundary is crossed by the
//   ring's whole traffic once, spread over the members of the node; inside a node members pass on the rest. On a
//   switch they pass it to the next member; with direct pair links the rings take all orders of the members, so a
//   member's traffic spreads evenly over the links to all others (NCCL's search finds such rings too).
// * exchange (all-to-all(v), ring hop, pipeline edge, halo): every message on its own route, one phase.
// * The protocol (LL, LL128, Simple) is the one with the least time alone; constants in sim/network/protocol.h.
//
// Ignores: NVLS (so a large all-reduce inside one Hopper node comes out 25 to 33 % too slow), PAT and SHARP, the ramp
// of channels, the batches of eight peers in a large exchange, the loads of staging copies. Not calibrated on a machine
// of its own: callers give times +-25 %.
// A Collectives keeps scratch space: not to be shared between threads. Results do not depend on earlier calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/core/units.h"
#include "sim/network/transfer.h"

namespace longhaul {

// `bytes` from one rank to another; from == to is a local copy and moves nothing on links.
struct PeerMessage {
  int from = 0;
  int to = 0;
  Bytes bytes;
};

class Collectives {
 public:
  // `cluster` must outlive this.
  explicit Collectives(const Cluster& cluster);

  // `ranks`: distinct ranks in member order, at least one. A group of one, or no bytes: an empty transfer of no time.
  // Each member gives `per_rank` bytes and ends with all of them. Every rank sends (n-1) x per_rank.
  Transfer all_gather(std::span<const int> ranks, Bytes per_rank);
  // Each member gives n x per_rank_result bytes and ends with its own reduced part. Every rank sends
  // (n-1) x per_rank_result.
  Transfer reduce_scatter(std::span<const int> ranks, Bytes per_rank_result);
  // Ring: n equal parts, the last ones padded; every rank sends 2 (n-1) ceil(buffer / n). Tree: the buffer up and down
  // along every edge.
  Transfer all_reduce(std::span<const int> ranks, Bytes buffer);
  // From ranks[0] along the rings: every other member takes the buffer in once.
  Transfer broadcast(std::span<const int> ranks, Bytes buffer);
  // One group of sends and receives.
  Transfer exchange(std::span<const PeerMessage> messages);

 private:
  struct Group;  // members by node
  struct Peers;  // who sends to whom in an exchange

  Group make_group(std::span<const int> ranks) const;
  Route add_route(int from, int to, std::int64_t bytes);
  bool is_nvlink(LinkId link) const;
  // All rings of the group: every member but `root` (none if negative) takes in `each` bytes.
  void add_ring(const Group& group, std::int64_t each, int root);
  void add_tree(const Group& group, std::int64_t bytes);
  // Into `member` of a node from the others on it.
  void add_local(const std::vector<int>& members, std::size_t member, std::int64_t bytes);
  void add_boundary(const std::vector<int>& from, const std::vector<int>& to, std::int64_t bytes);
  double link_seconds(const std::vector<double>& efficiency_of_class) const;
  void choose_ring(const Group& group, int steps, std::int64_t total, Transfer& transfer) const;
  // Moves the loads out of the scratch space into the transfer.
  Transfer& take_loads(Transfer& transfer);
  Transfer symmetric_ring(std::span<const int> ranks, std::int64_t each, int steps, std::int64_t total);
  Transfer tree_all_reduce(std::span<const int> ranks, std::int64_t bytes, Time to_beat);
  Peers count_peers(std::span<const PeerMessage> messages, Transfer& transfer);
  static double slowest_route(const Topology& topology, const Peers& peers, Protocol protocol);
  void time_exchange(const Peers& peers, Transfer& transfer) const;

  const Cluster* cluster_;
  std::vector<std::int64_t> load_;  // by link; zero between calls
  std::vector<LinkId> touched_;
  std::vector<std::int32_t> slot_;  // by rank; -1 between calls
};

}  // namespace longhaul
