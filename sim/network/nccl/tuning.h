// NCCL's own estimate of a call, and the choice that follows from it: graph/tuning.cc (ncclTopoTuneModel,
// ncclTopoGetAlgoTime) and enqueue.cc (topoGetAlgoInfo, calcCollChunking, scheduleCollTasksToPlan) of NCCL 2.28.
//
// The estimate only chooses; how long the call really takes is nccl_time's matter. Times in us, rates in GB/s.
#pragma once

#include <bit>
#include <optional>

#include "sim/network/nccl/graph.h"
#include "sim/network/nccl/model.h"

namespace longhaul {

// Levels of a binary tree of so many domains, at least one.
inline int floor_log2(int domains) {
  // The cast: libstdc++ 12 returns its argument's type, where the standard has int.
  return static_cast<int>(std::bit_width(static_cast<unsigned>(domains))) - 1;
}

// What posting to a NIC takes the host's CPU, us (getNetOverhead).
inline double post_us(const NcclMachine& machine) { return machine.cpu == HostCpu::kAmd ? 2 : 1; }

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::kRing;
  NcclProtocol protocol = NcclProtocol::kSimple;
  int channels = 1;
};

// nullopt: NCCL does not allow this algorithm with this protocol here.
std::optional<double> nccl_estimate(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call,
                                    NcclAlgorithm algorithm, NcclProtocol protocol);

// The allowed pair with the least estimate, and its channels. Not for all-to-all and send/receive.
NcclChoice nccl_choose(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call);

// Channels that NCCL starts for the pair: fewer while a call is short.
int nccl_channels(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call, NcclAlgorithm algorithm,
                  NcclProtocol protocol);

// Bytes of one NVLS or NVLSTree chunk of a call of `bytes`.
double nvls_chunk(const NcclMachine& machine, const NcclGraph& graph, const NcclCall& call, NcclAlgorithm algorithm);

// Bytes of one chunk of an LL128 tree.
double ll128_tree_chunk(const NcclCall& call, int channels);

}  // namespace longhaul
