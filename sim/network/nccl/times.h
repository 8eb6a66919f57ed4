// How long one algorithm and protocol takes, from the steps that it makes. One function an algorithm; sim/network/nccl
// /model.h chooses between them.
//
// Symbols: n ranks, D domains, L ranks a domain, S bytes of the call, B NCCL's NVLink rate, d = S / (n channels) the
// bytes that one channel moves in one ring step. Times in us; bytes / (1000 GB/s) gives us.
#pragma once

#include "sim/network/nccl/graph.h"
#include "sim/network/nccl/model.h"
#include "sim/network/nccl/tuning.h"

namespace longhaul {

inline constexpr double kLlPayload = 0.5;  // half of every LL line is flags

// `rate` in GB/s.
inline double microseconds(double bytes, double rate) { return bytes / (1000 * rate); }

struct Parts {
  double fixed_us = 0;
  double bytes_us = 0;
};

// What the functions below look at.
struct NcclCase {
  const NcclConstants& constants;
  const NcclMachine& machine;
  const NcclGraph& graph;
  const NcclCall& call;

  double gpu(GpuTerm term) const { return constants.of(machine.gpu, term); }
  double network(NetworkTerm term) const { return constants.of(machine.network, term); }
};

// Ring in one domain. `steps` = 2(n-1) for all-reduce, n-1 for gather, scatter, broadcast.
Parts ring_ll(const NcclCase& c, int channels);
Parts ring_ll128(const NcclCase& c, int channels);
Parts ring_simple(const NcclCase& c, int channels);
Parts nvls(const NcclCase& c);
// Over several domains.
Parts network_ring(const NcclCase& c, NcclProtocol protocol, int channels);
Parts network_tree(const NcclCase& c, NcclProtocol protocol, int channels);
Parts nvls_tree(const NcclCase& c);
Parts collnet(const NcclCase& c);
Parts pat(const NcclCase& c);

// What a call's time needs and constants do not change: laid once where the same call is asked for many constants.
struct NcclPlan {
  NcclCall call;
  NcclGraph graph;
  bool tuned = false;  // a tuner plug-in chooses by the times, so the choice does depend on the constants
  NcclChoice choice;   // unless tuned, or an exchange
};
NcclPlan nccl_plan(const NcclMachine& machine, const NcclCall& call);
NcclTime nccl_time(const NcclConstants& constants, const NcclMachine& machine, const NcclPlan& plan);

}  // namespace longhaul
