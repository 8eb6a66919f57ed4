// The channels that NCCL lays over a machine: what its graph search finds, as far as the choice of an algorithm and the
// time of a call need it. Sources: NCCL 2.28 graph/search.cc (speeds tried, duplication), graph/connect.cc (doubling of
// channels), graph/topo.h (rate of a link), transport/nvls.cc (heads and channels), graph/paths.cc (channels a peer).
#pragma once

#include "sim/network/nccl/model.h"

namespace longhaul {

struct NcclGraph {
  int ring_channels = 1;        // as the search counts them; ring_channels * ring_rate is NCCL's bus bandwidth
  double ring_rate = 0;         // GB/s a channel
  bool same_order = true;       // all rings pass the ranks in one order (graph search: sameChannels)
  int collective_channels = 2;  // that ring and tree kernels may use
  int nvls_heads = 0;           // 0: no NVLS
  double nvls_rate = 0;         // GB/s a head
  double nvls_inter_rate = 0;   // GB/s a head over the network; nvls_rate inside one domain
  int nvls_channels = 0;
  double nvlink_rate = 0;  // GB/s one way that a rank of this group reaches inside its domain

  double ring_bus_rate() const { return ring_channels * ring_rate; }
};

// Of a communicator with `per_domain` ranks in each of `domains` domains.
NcclGraph nccl_graph(const NcclMachine& machine, int domains, int per_domain);

// GB/s one way that `per_domain` ranks have of their domain's NICs together, as rated.
double domain_network_rate(const NcclMachine& machine, int per_domain);

// Channels that a peer may have: the least over all peers of a communicator (graph/paths.cc: p2pnChannelsPerPeer).
int p2p_channels_per_peer(const NcclMachine& machine, int ranks, int domains);

struct P2pPlan {
  bool ll = false;   // LL, else Simple
  int channels = 1;  // that the message is spread over
};

// How a message of `bytes` between two ranks is sent (enqueue.cc:addP2pToPlan). Until 2.28 LL reached up to 16 KiB for
// each channel that a peer may have, and its parts were cut at 8 KiB; since 2.29 it is 16 KiB for each one used.
P2pPlan p2p_plan(const NcclMachine& machine, int ranks, int domains, double bytes);

// Channels, each a block on the GPU, that a group of sends and receives takes of a rank: those of one message times its
// peers, a send and a receive of one round together, until all channels are taken (enqueue.cc:scheduleP2pTasksToPlan).
// `peers`: that it sends to or that it receives from, whichever are more; `largest`: bytes of one message. 0 without.
int p2p_channels(const NcclMachine& machine, int ranks, int domains, int peers, double largest);

}  // namespace longhaul
