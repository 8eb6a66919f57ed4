// NCCL's protocols as times: start-up, per-step latency and the part of the link rate that each reaches.
//
// Every step takes the wire latency of its link (Topology::nvlink_step, network_step) and what NCCL adds. The step
// constants here are whole steps as fitted, on machines whose NVLink takes kFittedNvLinkUs; on others they change by
// the difference. The hop constants of a topology are what NCCL adds alone. Rings stay on their rails.
// Constants are fits to published nccl-tests tables (54 tables of A100, H100 and H200; NCCL 2.18 to 2.30;
// 2026). Hardware facts for this model: they are never tuned to a result of Longhaul. Times in us, rates in GB/s,
// sizes in bytes.
// Ignores: Blackwell's own constants (Hopper's stand in, with its own link rate), fabrics other than InfiniBand/RoCE.
#pragma once

#include <cstdint>

#include "sim/cluster/cluster.h"
#include "sim/network/transfer.h"

namespace longhaul {

struct NcclConstants {
  double start_us;         // any launch
  double ll_step_us;       // LL ring or tree step over NVLink
  double ll_ramp_us;       // LL: while a step carries less than 4 KiB a channel, in proportion
  double ll_channel_rate;  // LL: one channel copies no faster
  double ll128_start_us;
  double ll128_step_us;
  double ll128_efficiency;  // of the link rate
  double simple_start_us;
  double simple_step_us;
  double exchange_ll_us;         // grouped send/recv, LL
  double exchange_channel_rate;  // one channel of one peer, Simple
};

// Part of every NVLink step below: NCCL 2.28 graph/tuning.cc, latency table, LL: ring step over NVLink 0.6 us.
inline constexpr double kFittedNvLinkUs = 0.6;
inline constexpr double kLlEfficiency = 0.5;           // four bytes of flag for four of data
inline constexpr double kLlNetworkEfficiency = 0.125;  // LL over NICs, of their rated bandwidth
inline constexpr double kLlCopy = 0.8;                 // LL: local copies, in parts of one rank's share
inline constexpr double kSimpleCopy = 0.54;            // LL128 and Simple: the same
inline constexpr double kSimpleChunkRate = 230;        // Simple: a step waits for a chunk of up to 512 KiB at this rate
inline constexpr double kNetworkLlStepUs = 2;          // floor of an NVLink step when the ring also crosses NICs, LL
inline constexpr double kNetworkSimpleStepUs = 3;      // the same, Simple
inline constexpr double kTreeLlRate = 9;               // LL tree over nodes: bytes of the buffer
inline constexpr double kExchangeLlRate = 6;           // LL exchange: bytes of the largest message
inline constexpr double kExchangeSimpleUs = 6.3;
inline constexpr double kExchangeNvLinkEfficiency = 0.83;   // many sends at once, of the effective NVLink rate
inline constexpr double kExchangeNicEfficiency = 0.75;      // many sends at once, of the rated NIC bandwidth
inline constexpr std::int64_t kExchangeLlBytes = 16 << 10;  // a message up to this goes by LL
inline constexpr int kMaxChannels = 24;

const NcclConstants& nccl_constants(GpuGeneration generation);

// How much longer (or shorter) an NVLink step of this topology takes than where the constants were fitted, us. Zero on
// the shipped ones.
double nvlink_extra_us(const Topology& topology);
// One hop over the network, the wire included, seconds. `protocol`: LL or Simple.
double network_hop_seconds(const Topology& topology, Protocol protocol);

// The group of a collective as far as time is concerned.
struct GroupShape {
  int ranks = 0;          // n
  int nodes = 0;          // D
  int per_node = 0;       // the most members on one node
  double local_rate = 0;  // GB/s that one member can send to the others of its node
};

// Fixed time of a ring of `steps` steps (n-1, or 2(n-1) for all-reduce) that moves a buffer of `total` bytes (n times
// the part of a rank), in seconds; infinity where NCCL does not offer the protocol.
double ring_latency(const Cluster& cluster, const GroupShape& group, Protocol protocol, int steps, std::int64_t total);

// The least time of the byte phase that the steps themselves ask for, whatever the links carry (LL only), in seconds.
double ring_step_seconds(const Cluster& cluster, const GroupShape& group, Protocol protocol, int steps,
                         std::int64_t total);

// The part of a link's bandwidth (Link::bandwidth) that a ring reaches with the protocol.
double ring_efficiency(const Cluster& cluster, const GroupShape& group, Protocol protocol, const LinkClass& kind);

// Fixed time of an LL tree all-reduce, seconds.
double tree_latency(const Cluster& cluster, const GroupShape& group);

}  // namespace longhaul
