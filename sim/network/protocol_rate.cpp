#include "sim/network/protocol_rate.h"

#include <algorithm>
#include <array>

namespace longhaul {
namespace {

// The constants rate NVLS by S 2(n-1)/n, the bytes of a ring; (1 + 1/n) S go over a GPU's link.
double nvls_part(double efficiency, int members) {
  const double n = members;
  return members > 1 ? efficiency * (n + 1) / (2 * (n - 1)) : 1;
}

// Four of eight bytes of an LL line are data, 120 of 128 of an LL128 line; Simple sends data alone.
double payload(NcclProtocol protocol) {
  switch (protocol) {
    case NcclProtocol::kLl:
      return 0.5;
    case NcclProtocol::kLl128:
      return 120.0 / 128;
    case NcclProtocol::kSimple:
      break;
  }
  return 1;
}

double nvlink_part(const NcclConstants& constants, const NcclMachine& machine, const NcclTime& time, int largest) {
  const auto gpu = [&](GpuTerm term) { return constants.of(machine.gpu, term); };
  if (time.algorithm == NcclAlgorithm::kNvls || time.algorithm == NcclAlgorithm::kNvlsTree) {
    return nvls_part(gpu(GpuTerm::kNvlsEfficiency), largest);
  }
  const bool long_sends = time.algorithm == NcclAlgorithm::kDirect && time.protocol == NcclProtocol::kSimple;
  if (long_sends) return gpu(GpuTerm::kP2pEfficiency);
  return time.protocol == NcclProtocol::kLl128 ? gpu(GpuTerm::kLl128Efficiency) : payload(time.protocol);
}

// Of the rated NIC.
double network_part(const NcclConstants& constants, const NcclMachine& machine, const NcclTime& time, int far_peers) {
  const bool collide = time.algorithm == NcclAlgorithm::kDirect && far_peers > 1;
  return payload(time.protocol) *
         constants.of(machine.network, collide ? NetworkTerm::kP2pEfficiency : NetworkTerm::kEfficiency);
}

// A PCIe link carries its rate whatever the protocol: it is the NIC that collisions and flags hold up.
enum Kind : std::uint8_t { kNvLinkKind, kNetworkKind, kPcieKind };
constexpr std::size_t kKinds = 3;

Kind kind_of(const LinkClass& link) {
  if (link.name == "pcie") return kPcieKind;
  return link.scope == LinkScope::kIntraNode ? kNvLinkKind : kNetworkKind;
}

// NCCL's constants were found on fabrics that do not block: what lies above the leaves is none of its doing, so
// oversubscription and collisions there slow a transfer whether they stand in the topology or in a what-if.
bool is_between_switches(const LinkClass& link) { return link.name == "leaf" || link.name == "spine"; }

double clamp_part(double part) { return part > 0 ? std::min(1.0, part) : 1; }

}  // namespace

ProtocolRate protocol_rate(const NcclConstants& constants, const NcclMachine& machine, const LinkClass& nic,
                           const NcclTime& time, int largest, int far_peers) {
  return {clamp_part(nvlink_part(constants, machine, time, largest)),
          clamp_part(network_part(constants, machine, time, far_peers) / nic.efficiency)};
}

BytePhase byte_phase(const LoadSheet& sheet, const ProtocolRate& rate, double nccl_seconds) {
  const Cluster& cluster = sheet.cluster();
  // Longest time of a link by kind, at its full bandwidth: of an undamaged machine, and of the one that is there.
  std::array<double, kKinds> healthy{};
  std::array<double, kKinds> actual{};
  for (const LinkId id : sheet.touched()) {
    const Link& link = cluster.links()[static_cast<std::size_t>(id)];
    const auto at = static_cast<std::size_t>(kind_of(cluster.described(id)));
    actual[at] = std::max(actual[at], static_cast<double>(sheet.load(id)) / link.bandwidth.value);
  }
  for (const LinkId id : sheet.undamaged_touched()) {
    const LinkClass& kind = cluster.described(id);
    if (is_between_switches(kind)) continue;
    const auto at = static_cast<std::size_t>(kind_of(kind));
    healthy[at] = std::max(healthy[at], static_cast<double>(sheet.undamaged_load(id)) / kind.effective().value);
  }
  const std::array<double, kKinds> reached = {rate.nvlink, rate.network, 1.0};
  BytePhase phase{nccl_seconds, 0};
  for (std::size_t at = 0; at < kKinds; ++at) {
    if (actual[at] == 0) continue;
    const double part = std::min(1.0, reached[at]);
    // Without healthy links of the kind (a graph that joins switches alone) the rate of the protocol is all there is.
    const bool nccl_is_law = healthy[at] / part > nccl_seconds;
    const double scaled = nccl_is_law ? nccl_seconds * (actual[at] / healthy[at]) : actual[at] / part;
    phase.seconds = std::max({phase.seconds, scaled, actual[at]});
    phase.hidden = std::max(phase.hidden, healthy[at] - nccl_seconds);
  }
  return phase;
}

}  // namespace longhaul
