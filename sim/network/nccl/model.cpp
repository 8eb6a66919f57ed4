#include "sim/network/nccl/model.h"

#include <algorithm>
#include <limits>

#include "sim/core/invariant.h"
#include "sim/network/nccl/times.h"

namespace longhaul {
namespace {

constexpr int kSharedWork = 22200;  // the version from which channels share work elements

Parts parts_of(const NcclCase& c, const NcclChoice& choice) {
  switch (choice.algorithm) {
    case NcclAlgorithm::kRing:
      if (c.call.domains > 1) return network_ring(c, choice.protocol, choice.channels);
      if (choice.protocol == NcclProtocol::kLl) return ring_ll(c, choice.channels);
      if (choice.protocol == NcclProtocol::kLl128) return ring_ll128(c, choice.channels);
      return ring_simple(c, choice.channels);
    case NcclAlgorithm::kTree:
      return network_tree(c, choice.protocol, choice.channels);
    case NcclAlgorithm::kNvls:
      return c.call.domains > 1 ? collnet(c) : nvls(c);
    case NcclAlgorithm::kNvlsTree:
      return nvls_tree(c);
    case NcclAlgorithm::kCollNetDirect:
    case NcclAlgorithm::kCollNetChain:
      return collnet(c);
    case NcclAlgorithm::kPat:
      return pat(c);
    case NcclAlgorithm::kDirect:
      break;
  }
  return {};
}

// Of a network whose maker ships a tuner plug-in, made from measurements: the pair that is really fastest.
NcclChoice tuned_choice(const NcclConstants& constants, const NcclMachine& machine, const NcclGraph& graph,
                        const NcclCall& call) {
  NcclChoice best;
  double least = std::numeric_limits<double>::infinity();
  for (int a = 0; a < static_cast<int>(NcclAlgorithm::kDirect); ++a) {
    for (int p = 0; p < 3; ++p) {
      NcclChoice choice{static_cast<NcclAlgorithm>(a), static_cast<NcclProtocol>(p), 1};
      if (!nccl_estimate(machine, graph, call, choice.algorithm, choice.protocol)) continue;
      choice.channels = nccl_channels(machine, graph, call, choice.algorithm, choice.protocol);
      const Parts parts = parts_of({constants, machine, graph, call}, choice);
      const double time = parts.fixed_us + parts.bytes_us;
      if (time >= least) continue;
      least = time;
      best = choice;
    }
  }
  return best;
}

bool has_tuner(const NcclMachine& machine, const NcclCall& call) {
  return call.domains > 1 && (machine.network == NcclNetwork::kEfa1 || machine.network == NcclNetwork::kEfa2 ||
                              machine.network == NcclNetwork::kTcpxo);
}

NcclExchange exchange_of(const NcclCall& call) {
  NcclExchange out;
  out.ranks = call.ranks;
  out.domains = call.domains;
  if (call.collective == NcclCollective::kSendRecv) {
    out.near_peers = call.per_domain > 1 ? 1 : 0;
    out.far_peers = call.domains > 1 ? 1 : 0;
    out.near_message = out.near_bytes = out.near_peers * call.bytes;
    out.far_message = out.far_bytes = out.far_peers * call.bytes;
    return out;
  }
  const double message = call.bytes / call.ranks;
  out.near_peers = call.per_domain - 1;
  out.far_peers = call.ranks - call.per_domain;
  out.near_message = out.near_peers > 0 ? message : 0;
  out.far_message = out.far_peers > 0 ? message : 0;
  out.near_bytes = out.near_peers * message;
  out.far_bytes = out.far_peers * message;
  return out;
}

bool is_exchange(const NcclCall& call) {
  return call.collective == NcclCollective::kAllToAll || call.collective == NcclCollective::kSendRecv;
}

}  // namespace

NcclPlan nccl_plan(const NcclMachine& machine, const NcclCall& call) {
  LH_ASSERT(call.ranks >= 1 && call.domains >= 1 && call.bytes >= 0, "{} ranks in {} domains, {} bytes", call.ranks,
            call.domains, call.bytes);
  NcclPlan plan;
  plan.call = call;
  if (call.ranks == 1 || is_exchange(call)) return plan;
  plan.graph = nccl_graph(machine, call.domains, call.per_domain);
  plan.tuned = has_tuner(machine, call);
  if (!plan.tuned) plan.choice = nccl_choose(machine, plan.graph, call);
  return plan;
}

NcclTime nccl_time(const NcclConstants& constants, const NcclMachine& machine, const NcclPlan& plan) {
  const NcclCall& call = plan.call;
  if (call.ranks == 1) {
    NcclTime alone;
    alone.fixed_us = constants.of(machine.gpu, GpuTerm::kStart);
    return alone;
  }
  if (is_exchange(call)) return nccl_time(constants, machine, exchange_of(call));
  const NcclChoice choice = plan.tuned ? tuned_choice(constants, machine, plan.graph, call) : plan.choice;
  const Parts parts = parts_of({constants, machine, plan.graph, call}, choice);
  return {choice.algorithm, choice.protocol, choice.channels, parts.fixed_us, parts.bytes_us};
}

NcclTime nccl_time(const NcclConstants& constants, const NcclMachine& machine, const NcclCall& call) {
  return nccl_time(constants, machine, nccl_plan(machine, call));
}

double harness_us(const NcclConstants& constants, const HarnessCall& call) {
  switch (call.harness) {
    case Harness::kNcclTests:
      return 0;
    case Harness::kNcclTestsOneThread: {
      const double channels = call.version < kSharedWork ? call.channels * constants.launch_channel_us : 0;
      return std::max(0.0, call.gpus_per_host * (constants.launch_us + channels) - call.us);
    }
    case Harness::kPyTorch:
      return constants.pytorch_us;
  }
  return 0;
}

std::string_view nccl_name(NcclCollective collective) {
  switch (collective) {
    case NcclCollective::kAllReduce:
      return "all_reduce";
    case NcclCollective::kAllGather:
      return "all_gather";
    case NcclCollective::kReduceScatter:
      return "reduce_scatter";
    case NcclCollective::kAllToAll:
      return "alltoall";
    case NcclCollective::kSendRecv:
      return "sendrecv";
    case NcclCollective::kBroadcast:
      return "broadcast";
  }
  return "";
}

std::string_view nccl_name(NcclAlgorithm algorithm) {
  switch (algorithm) {
    case NcclAlgorithm::kRing:
      return "ring";
    case NcclAlgorithm::kTree:
      return "tree";
    case NcclAlgorithm::kNvls:
      return "NVLS";
    case NcclAlgorithm::kNvlsTree:
      return "NVLSTree";
    case NcclAlgorithm::kCollNetDirect:
      return "CollNetDirect";
    case NcclAlgorithm::kCollNetChain:
      return "CollNetChain";
    case NcclAlgorithm::kPat:
      return "PAT";
    case NcclAlgorithm::kDirect:
      return "direct";
  }
  return "";
}

std::string_view nccl_name(NcclProtocol protocol) {
  switch (protocol) {
    case NcclProtocol::kLl:
      return "LL";
    case NcclProtocol::kLl128:
      return "LL128";
    case NcclProtocol::kSimple:
      return "Simple";
  }
  return "";
}

}  // namespace longhaul
