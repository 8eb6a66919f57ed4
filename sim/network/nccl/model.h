// How NCCL chooses algorithm, protocol and channels for a collective, and how long the call takes when nobody else uses
// its links. Pure functions of a machine, a call and constants; nothing here knows about transfers or routes.
//
// Units: times in us, rates in GB/s (1e9 bytes a second), sizes in bytes. A call counts `bytes` as nccl-tests prints
// them: all-reduce, broadcast and send/receive the message, all-gather the gathered buffer, reduce-scatter the input
// buffer, all-to-all the whole send buffer of a rank (its own part included).
//
// Selection follows NCCL 2.18 to 2.30 (graph/tuning.cc, enqueue.cc; the version is part of the machine); times follow
// the step structure of the algorithms with constants that hang on the GPU generation, the link technology and the
// algorithm or protocol, never on a machine. Only + - * / and square roots: the results feed simulated time.
// Invariants: fixed_us >= 0, bytes_us >= 0; one rank or no bytes to move still costs a start. More bytes are never
// charged by a smaller bytes_us within one algorithm and protocol.
// Ignores: tuner plug-ins' own cost tables, user buffer registration, symmetric-memory kernels, NCCL_* settings other
// than NVLS on or off, and other jobs on the links (the network room shares links).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/cluster/topology.h"
#include "sim/network/nccl/constants.h"

namespace longhaul {

// NCCL of PyTorch 2.9, and of most measured tables that name none.
inline constexpr int kNcclVersion = 22707;

enum class NcclCollective : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSendRecv,  // nccl-tests' sendrecv_perf: every rank sends to the next and receives from the one before
  kBroadcast,
};

enum class NcclAlgorithm : std::uint8_t {
  kRing,
  kTree,
  kNvls,
  kNvlsTree,
  kCollNetDirect,
  kCollNetChain,
  kPat,
  kDirect,  // sends and receives
};

enum class NcclProtocol : std::uint8_t { kLl, kLl128, kSimple };

std::string_view nccl_name(NcclCollective collective);  // "all_reduce", as the tables of nccl-tests spell it
std::string_view nccl_name(NcclAlgorithm algorithm);    // "ring"
std::string_view nccl_name(NcclProtocol protocol);      // "LL128"

// What NCCL sees of a cluster.
struct NcclMachine {
  NcclGpu gpu = NcclGpu::kHopper;
  bool nvswitch = true;        // false: a direct NVLink between every two GPUs of a domain
  double nvlink_rate = 370.8;  // GB/s one way, all links of a GPU, as NCCL counts them (20.0, 20.6, 40.1 a link)
  int nvlink_links = 18;       // of a GPU, to the switch or to all its peers together
  double memory_rate = 3350;   // GB/s of the GPU's memory, as rated
  int gpus_per_domain = 8;     // GPUs that reach each other over NVLink
  double nic_rate = 50;        // GB/s one way that a GPU has of the NICs, as rated; 0 if there is no network
  int nics_per_domain = 8;
  NcclNetwork network = NcclNetwork::kInfiniBand;
  HostCpu cpu = HostCpu::kIntel;
  bool sharp = false;          // the fabric reduces in its switches (CollNet)
  int version = kNcclVersion;  // NCCL's: 10000 major + 100 minor + patch; its tables and cuts changed over time
  bool nvls = true;            // NVLink multicast is there and NCCL_NVLS_ENABLE is not 0; needs Hopper or later
  // NCCL_ALGO; where that cannot run the ring does, as in NCCL 2.19 to 2.23 (later versions refuse the call).
  std::optional<NcclAlgorithm> forced = {};
};

// From what the topology says; constants that it cannot know (NCCL's rate of a link) come from the generation.
NcclMachine nccl_machine(const Topology& topology);

// One collective of `ranks` ranks, `per_domain` in each of `domains` NVLink domains (the largest number if uneven).
struct NcclCall {
  NcclCollective collective = NcclCollective::kAllReduce;
  int ranks = 1;
  int domains = 1;
  int per_domain = 1;
  double bytes = 0;
};

// A group of sends and receives that start together (ncclGroupStart .. ncclGroupEnd), seen from its busiest rank.
// Parts that a rank sends to itself do not count.
struct NcclExchange {
  int ranks = 2;            // of the communicator
  int domains = 1;          // that the communicator spans
  int near_peers = 0;       // most peers that a rank sends to (or receives from) in its NVLink domain
  int far_peers = 0;        // most in other domains
  double near_message = 0;  // largest message between two ranks of a domain, bytes
  double far_message = 0;   // largest message between two domains, bytes
  double near_bytes = 0;    // largest sum that a rank sends or receives in its domain
  double far_bytes = 0;     // largest sum that a rank sends or receives over the network
};

struct NcclTime {
  NcclAlgorithm algorithm = NcclAlgorithm::kRing;
  NcclProtocol protocol = NcclProtocol::kLl;
  int channels = 1;
  double fixed_us = 0;  // starts, steps, synchronisation: what is left when the links are endlessly fast
  double bytes_us = 0;  // what the bytes take on the slowest link or in the copying blocks

  double total_us() const { return fixed_us + bytes_us; }
};

// ranks >= 1, domains >= 1, bytes >= 0 (LH_ASSERT).
NcclTime nccl_time(const NcclConstants& constants, const NcclMachine& machine, const NcclCall& call);
NcclTime nccl_time(const NcclConstants& constants, const NcclMachine& machine, const NcclExchange& exchange);

// Who launches a measured call: a thread or process a GPU, one thread for all GPUs of a host (`nccl-tests -g 8`), or
// PyTorch.
enum class Harness : std::uint8_t { kNcclTests, kNcclTestsOneThread, kPyTorch };

// One call as a benchmark repeats it.
struct HarnessCall {
  Harness harness = Harness::kNcclTests;
  int gpus_per_host = 1;       // that take part
  int version = kNcclVersion;  // NCCL's
  int channels = 1;            // of the call
  double us = 0;               // the call by itself
};

// us that the benchmark measures on top of the call. One thread launches its GPUs' kernels one after another, and those
// of the next calls queue up behind a slow one: a call takes the longer of its own time and of all launches (until NCCL
// 2.21 a launch also writes a work element of 512 B for each channel, from 2.22 channels share them: release notes of
// 2.22.3). Left out: the start of the first call, over all iterations. Simulated steps launch from a thread a GPU and
// get none of this.
double harness_us(const NcclConstants& constants, const HarnessCall& call);

}  // namespace longhaul
