// How long the bytes of a transfer take, given what NCCL says of the call on healthy links.
//
// NCCL's own time for the bytes (NcclTime::bytes_us) holds on NICs and NVLinks as the topology describes them, none of
// them down, under a fabric that does not block. On the links that are there (scaled, down, shared by several GPUs,
// oversubscribed) a transfer takes at least bytes / (bandwidth x what the protocol reaches of it) on every link that it
// uses. What a protocol reaches comes from NCCL's constants: the flags of LL and LL128, the collisions of many sends on
// a NIC. It is never above 1, nor so low that healthy links alone would take longer than bytes_us: there NCCL's time is
// the law. Where healthy links need more than bytes_us at their full bandwidth (an LL step hides its bytes behind its
// latency), the fixed part gives that much up to the byte phase, and the whole stays.
#pragma once

#include "sim/network/comm_group.h"
#include "sim/network/load_sheet.h"
#include "sim/network/nccl/model.h"

namespace longhaul {

// Parts of a link's bandwidth (Link::bandwidth), in (0, 1].
struct ProtocolRate {
  double nvlink = 1;
  double network = 1;  // NICs and what lies between them
};

// `largest`: members of the largest domain; `far_peers`: of a rank of an exchange, in other domains.
ProtocolRate protocol_rate(const NcclConstants& constants, const NcclMachine& machine, const LinkClass& nic,
                           const NcclTime& time, int largest, int far_peers);

struct BytePhase {
  double seconds = 0;  // `nccl_seconds`, or what the most loaded link needs if that is more
  double hidden = 0;   // what healthy links need beyond `nccl_seconds`: NCCL's time has it inside the fixed part
};
BytePhase byte_phase(const LoadSheet& sheet, const ProtocolRate& rate, double nccl_seconds);

}  // namespace longhaul
