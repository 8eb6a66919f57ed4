// Device memory that NCCL holds on one rank for one communicator, by the source of NCCL 2.28.9 (the settings that it
// ships with, CUDA's virtual memory on).
//
// * Every device allocation is one of its own and takes whole pieces of 2 MiB (include/alloc.h: ncclCudaCallocAsync,
//   ncclCuMemAlloc; the granularity of device memory).
// * At init each channel takes three small ones (channel.cc: initChannel), the communicator two (devCommSetup of
//   init.cc). There are as many channels as sends may use: those of collectives, up to a power of two (graph/paths.cc:
//   ncclTopoComputeP2pChannels). A communicator of one rank finds 32 rings on its GPU and doubles them to 64
//   (graph/search.cc: maxChannels; graph/connect.cc: ncclTopoPostset).
// * A connection is made when it is first used (init.cc: runtimeConn). The receiver's side holds the buffers of three
//   protocols (init.cc, device.h: LL 512 threads x 8 lines x 8 steps x 16 B, LL128 640 x 120 x 8 x 8 B, Simple 4 MiB)
//   and a page of flags, the sender's side a page (transport/p2p.cc: p2pSendSetup, p2pRecvSetup). Between A100s the
//   receiver reads: the Simple buffer is the sender's.
// * Rings connect each collective channel to the next and the previous rank (transport/generic.cc), sends and receives
//   every channel of a peer, and only in the direction used (enqueue.cc: p2pTaskAppend).
//
// Ignores: trees' further connections, NVLS, CollNet, buffers of the network's transport (peers in other domains count
// as if over NVLink), registered buffers, and the code of NCCL's kernels.
#pragma once

#include "sim/core/units.h"
#include "sim/network/nccl/model.h"

namespace longhaul {

// One rank's part of a communicator, as far as it has been used.
struct NcclConnections {
  int ranks = 1;
  int domains = 1;
  int per_domain = 1;
  bool rings = false;     // a collective other than sends and receives has run
  int send_peers = 0;     // other ranks that it has sent to
  int receive_peers = 0;  // and received from
};

Bytes nccl_memory(const NcclMachine& machine, const NcclConnections& connections);

}  // namespace longhaul
