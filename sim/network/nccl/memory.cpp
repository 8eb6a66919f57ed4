#include "sim/network/nccl/memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/network/nccl/graph.h"

namespace longhaul {
namespace {

constexpr std::int64_t kPiece = std::int64_t{2} << 20;
constexpr std::int64_t kFlags = 4096;  // MEM_ALIGN
constexpr std::int64_t kSteps = 8;
constexpr std::int64_t kLl = 512 * 8 * kSteps * 16;
constexpr std::int64_t kLl128 = 640 * 120 * kSteps * 8;
constexpr std::int64_t kSimple = std::int64_t{4} << 20;
constexpr int kAllChannels = 64;  // MAXCHANNELS
constexpr int kPiecesOfChannel = 3;
constexpr int kPiecesOfCommunicator = 2;

std::int64_t allocated(std::int64_t bytes) { return ceil_div(bytes, kPiece) * kPiece; }

}  // namespace

Bytes nccl_memory(const NcclMachine& machine, const NcclConnections& of) {
  LH_ASSERT(of.ranks >= 1 && of.send_peers >= 0 && of.send_peers < of.ranks && of.receive_peers >= 0 &&
                of.receive_peers < of.ranks,
            "{} ranks, of which one sends to {} and receives from {}", of.ranks, of.send_peers, of.receive_peers);
  if (of.ranks == 1) return Bytes{(kAllChannels * kPiecesOfChannel + kPiecesOfCommunicator) * kPiece};
  const int collective = nccl_graph(machine, of.domains, of.per_domain).collective_channels;
  const auto channels = static_cast<int>(std::bit_ceil(static_cast<unsigned>(collective)));
  const std::int64_t per_peer = std::min(channels, p2p_channels_per_peer(machine, of.ranks, of.domains));
  const bool reads = machine.gpu == NcclGpu::kAmpere;
  const std::int64_t send = allocated(kFlags + (reads ? kSimple : 0));
  const std::int64_t receive = allocated(kFlags + kLl + kLl128 + (reads ? 0 : kSimple));
  std::int64_t bytes = (std::int64_t{channels} * kPiecesOfChannel + kPiecesOfCommunicator) * kPiece;
  if (of.rings) bytes += collective * (send + receive);
  bytes += per_peer * (of.send_peers * send + of.receive_peers * receive);
  return Bytes{bytes};
}

}  // namespace longhaul
