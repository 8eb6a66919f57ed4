#include "sim/network/collectives.h"

#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/core/units.h"
#include "sim/network/algorithm_loads.h"
#include "sim/network/nccl/graph.h"
#include "sim/network/shipped_nccl.h"

namespace longhaul {
namespace {

InsideDomain inside_of(NcclAlgorithm algorithm) {
  if (algorithm == NcclAlgorithm::kCollNetDirect) return InsideDomain::kDirect;
  return algorithm == NcclAlgorithm::kCollNetChain ? InsideDomain::kChain : InsideDomain::kNvls;
}

}  // namespace

Collectives::Collectives(const Cluster& cluster) : Collectives(cluster, shipped_nccl()) {}

Collectives::Collectives(const Cluster& cluster, const NcclConstants& constants)
    : cluster_(&cluster),
      constants_(&constants),
      machine_(nccl_machine(cluster.topology())),
      wires_(cluster),
      sheet_(cluster) {}

NcclTime Collectives::time_of(const CommGroup& group, NcclCollective collective, std::int64_t bytes) const {
  return nccl_time(*constants_, machine_, group.call(collective, bytes));
}

int Collectives::heads_of(const CommGroup& group) const {
  const int found = nccl_graph(machine_, static_cast<int>(group.domains.size()), group.largest).nvls_heads;
  const int nics = std::max(1, machine_.nics_per_domain);
  return std::clamp(found > 0 ? found : nics, 1, group.smallest);
}

Transfer Collectives::finish(const NcclTime& time, double extra_us, int largest, int far_peers) {
  const ProtocolRate rate = protocol_rate(*constants_, machine_, cluster_->topology().nic, time, largest, far_peers);
  Transfer transfer;
  transfer.algorithm = time.algorithm;
  transfer.protocol = time.protocol;
  transfer.channels = time.channels;
  const BytePhase bytes = byte_phase(sheet_, rate, time.bytes_us * kMicro);
  transfer.latency = Time::from_seconds(std::max(0.0, (time.fixed_us + extra_us) * kMicro - bytes.hidden));
  transfer.byte_seconds = bytes.seconds;
  transfer.alone = transfer.latency + Time::from_seconds(transfer.byte_seconds);
  sheet_.take(transfer);
  return transfer;
}

Transfer Collectives::gather_or_scatter(std::span<const int> ranks, std::int64_t part, bool scatter) {
  LH_ASSERT(!ranks.empty() && part >= 0, "a collective of {} ranks, {} bytes each", ranks.size(), part);
  if (ranks.size() == 1 || part == 0) return {};
  const CommGroup group = make_comm_group(*cluster_, ranks);
  sheet_.begin(ranks);
  const NcclTime time =
      time_of(group, scatter ? NcclCollective::kReduceScatter : NcclCollective::kAllGather, group.ranks * part);
  double extra_us = 0;
  switch (time.algorithm) {
    case NcclAlgorithm::kPat:
      put_pat(sheet_, group, part, scatter);
      extra_us = wires_.pat(group);
      break;
    case NcclAlgorithm::kNvls:
    case NcclAlgorithm::kCollNetDirect:
      (scatter ? put_switch_scatter : put_switch_gather)(sheet_, group, heads_of(group), inside_of(time.algorithm),
                                                         part);
      extra_us = wires_.inside(group, 1) + (group.domains.size() > 1 ? wires_.sharp_between(group) : 0);
      break;
    default:
      LH_ASSERT(time.algorithm == NcclAlgorithm::kRing, "a gather by {}", nccl_name(time.algorithm));
      put_even_ring(sheet_, group, (group.ranks - 1) * part);
      extra_us = wires_.ring(group, 1);
      break;
  }
  return finish(time, extra_us, group.largest);
}

Transfer Collectives::all_gather(std::span<const int> ranks, Bytes per_rank) {
  return gather_or_scatter(ranks, per_rank.value, false);
}

Transfer Collectives::reduce_scatter(std::span<const int> ranks, Bytes per_rank_result) {
  return gather_or_scatter(ranks, per_rank_result.value, true);
}

Transfer Collectives::all_reduce(std::span<const int> ranks, Bytes buffer) {
  LH_ASSERT(!ranks.empty() && buffer.value >= 0, "a collective of {} ranks, {} bytes", ranks.size(), buffer.value);
  if (ranks.size() == 1 || buffer.value == 0) return {};
  const CommGroup group = make_comm_group(*cluster_, ranks);
  sheet_.begin(ranks);
  const NcclTime time = time_of(group, NcclCollective::kAllReduce, buffer.value);
  double extra_us = 0;
  switch (time.algorithm) {
    case NcclAlgorithm::kTree:
      put_tree(sheet_, group, buffer.value);
      extra_us = wires_.tree(group);
      break;
    case NcclAlgorithm::kNvlsTree:
      put_nvls_tree(sheet_, group, heads_of(group), buffer.value);
      extra_us = wires_.inside(group, 2) + wires_.tree_between(group);
      break;
    case NcclAlgorithm::kNvls:
      if (group.domains.size() == 1) {
        put_nvls_all_reduce(sheet_, group, buffer.value);
        extra_us = wires_.inside(group, 2);
        break;
      }
      [[fallthrough]];
    case NcclAlgorithm::kCollNetDirect:
    case NcclAlgorithm::kCollNetChain:
      put_collnet_all_reduce(sheet_, group, heads_of(group), inside_of(time.algorithm), buffer.value);
      extra_us = wires_.inside(group, 2) + wires_.sharp_between(group);
      break;
    default: {
      LH_ASSERT(time.algorithm == NcclAlgorithm::kRing, "an all-reduce by {}", nccl_name(time.algorithm));
      const std::int64_t part = (buffer.value + group.ranks - 1) / group.ranks;
      put_even_ring(sheet_, group, 2 * (group.ranks - 1) * part);
      extra_us = wires_.ring(group, 2);
      break;
    }
  }
  return finish(time, extra_us, group.largest);
}

Transfer Collectives::broadcast(std::span<const int> ranks, Bytes buffer) {
  LH_ASSERT(!ranks.empty() && buffer.value >= 0, "a broadcast to {} ranks, {} bytes", ranks.size(), buffer.value);
  if (ranks.size() == 1 || buffer.value == 0) return {};
  const CommGroup group = make_comm_group(*cluster_, ranks);
  sheet_.begin(ranks);
  const NcclTime time = time_of(group, NcclCollective::kBroadcast, buffer.value);
  LH_ASSERT(time.algorithm == NcclAlgorithm::kRing, "a broadcast by {}", nccl_name(time.algorithm));
  MemberBytesTable in;
  for (const std::vector<int>& members : group.domains) in.emplace_back(members.size(), buffer.value);
  put_ring(sheet_, group, in, ranks[0]);
  return finish(time, wires_.ring(group, 1), group.largest);
}

// One broadcast from every member: into each go all parts but its own. One reduce to every member: out of each go all
// parts but its own, which is the gather over the ring the other way round, backwards.
Transfer Collectives::ring_of_parts(std::span<const int> ranks, std::span<const Bytes> parts, bool scatter) {
  LH_ASSERT(!ranks.empty() && parts.size() == ranks.size(), "{} parts for {} ranks", parts.size(), ranks.size());
  std::int64_t total = 0;
  std::int64_t least = parts[0].value;
  for (const Bytes part : parts) {
    LH_ASSERT(part.value >= 0, "a part of {} bytes", part.value);
    total += part.value;
    least = std::min(least, part.value);
  }
  if (ranks.size() == 1 || total == 0) return {};
  const CommGroup group = make_comm_group(*cluster_, ranks);
  sheet_.begin(ranks);
  NcclTime time = time_of(group, NcclCollective::kBroadcast, total);
  LH_ASSERT(time.algorithm == NcclAlgorithm::kRing, "a broadcast by {}", nccl_name(time.algorithm));
  // One broadcast of `total` would load every ring link with all of it; here the link into a member lacks its part.
  time.bytes_us *= static_cast<double>(total - least) / static_cast<double>(total);
  std::vector<std::int64_t> part_of_rank(static_cast<std::size_t>(cluster_->gpus()));
  for (std::size_t i = 0; i < ranks.size(); ++i) part_of_rank[static_cast<std::size_t>(ranks[i])] = parts[i].value;
  CommGroup way = group;
  if (scatter) {
    std::reverse(way.domains.begin(), way.domains.end());
    for (std::vector<int>& members : way.domains) std::reverse(members.begin(), members.end());
  }
  MemberBytesTable in;
  for (const std::vector<int>& members : way.domains) {
    in.emplace_back();
    for (const int rank : members) in.back().push_back(total - part_of_rank[static_cast<std::size_t>(rank)]);
  }
  put_ring(sheet_, way, in, -1, scatter);
  return finish(time, wires_.ring(group, 1), group.largest);
}

Transfer Collectives::all_gather_v(std::span<const int> ranks, std::span<const Bytes> parts) {
  return ring_of_parts(ranks, parts, false);
}

Transfer Collectives::reduce_scatter_v(std::span<const int> ranks, std::span<const Bytes> parts) {
  return ring_of_parts(ranks, parts, true);
}

}  // namespace longhaul
