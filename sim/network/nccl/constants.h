// The constants of NCCL's time model: named values by GPU generation and by network, read from topologies/nccl.json
// (`"schema": "nccl/1"`, topologies/nccl.schema.json). They are what `longhaul-fit collectives` finds from measured
// tables; none belongs to one table or one machine.
//
// Units are in the names: us, GB/s (gbps = 1e9 bytes a second), or a factor of NCCL's own rate of the link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "sim/core/error.h"

namespace longhaul {

enum class NcclGpu : std::uint8_t { kAmpere, kHopper, kBlackwell, kCdna };
inline constexpr std::size_t kNcclGpuCount = 4;

// EFA of the first generation (P4d, P4de: 4 NICs of 100 Gb/s a node) and of the second and later ones (P5, P6) differ
// by a factor of two and more in every hop.
enum class NcclNetwork : std::uint8_t { kInfiniBand, kRoce, kEfa1, kEfa2, kTcpx, kTcpxo, kEthernet };
inline constexpr std::size_t kNcclNetworkCount = 7;

// Of one GPU generation. What each term stands for: sim/network/nccl/times.h.
enum class GpuTerm : std::uint8_t {
  kStart,            // us, any collective: launch and first barrier
  kLlStep,           // us a ring step
  kLlRamp,           // us, once a channel's part of a step fills all threads
  kLlBlocks,         // us, once there is more than one channel
  kLlCopyStep,       // us more a step that also writes to the user's buffer, once all threads are filled
  kLlHidden,         // us of a step's transfer that its latency hides
  kLlCopy,           // parts of a rank's share that the copy from and to the user's buffers costs
  kLl128Start,       // us
  kLl128Step,        // us
  kLl128Efficiency,  // of the NVLink rate
  kSimpleStart,      // us
  kSimpleStep,       // us
  kSimpleLockstep,   // parts of a rank's share that copies cost while all channels copy and send at the same moments
  kSimpleDrift,      // loops after which channels drifted apart by as much as they were at first
  kReduceCopy,       // parts of a rank's share that all-reduce needs for its first and last copy
  kGatherCopy,       // the same, all-gather and broadcast
  kScatterCopy,      // the same, reduce-scatter
  kNvlsStart,        // us
  kNvlsSync,         // us a loop
  kNvlsFill,         // loops
  kNvlsEfficiency,   // of the NVLink rate
  kP2pLl,            // us
  kP2pLlRate,        // GB/s a channel
  kP2pSimple,        // us
  kP2pPeer,          // us a peer after the first
  kP2pAloneRate,     // GB/s a channel that only sends or only receives
  kP2pBothShare,     // of it while a channel sends and receives
  kP2pEfficiency,    // of the NVLink rate
  kP2pMemoryPasses,  // times that a byte crosses the memory beside the link
  kTreeStep,         // us a step of a Simple tree inside a domain
  kTreeLlRate,       // GB/s at which one channel of an LL tree stores and forwards
  kTreeChunkRate,    // GB/s at which one channel of a Simple tree stores and forwards
  kNvlsTreeFill,     // loops
  kCount,
};
inline constexpr std::size_t kGpuTermCount = static_cast<std::size_t>(GpuTerm::kCount);

// Of one network.
enum class NetworkTerm : std::uint8_t {
  kLlHop,           // us a hop, LL
  kLl128Hop,        // us a hop, LL128
  kSimpleHop,       // us a hop, Simple
  kLlShare,         // of the NIC rate, LL
  kTreeLlShare,     // of the NIC rate, LL trees
  kSimpleStart,     // us, Simple ring and tree
  kNvlsTreeStart,   // us
  kNvlsTreeSync,    // us a loop
  kEfficiency,      // of the NIC rate, long collectives
  kTreeEfficiency,  // of the NIC rate, long tree all-reduces
  kP2pEfficiency,   // of the NIC rate, long sends and receives
  kCount,
};
inline constexpr std::size_t kNetworkTermCount = static_cast<std::size_t>(NetworkTerm::kCount);

struct NcclConstants {
  std::array<std::array<double, kGpuTermCount>, kNcclGpuCount> gpus{};
  std::array<std::array<double, kNetworkTermCount>, kNcclNetworkCount> networks{};
  double pytorch_us = 0;         // what a PyTorch benchmark measures on top of nccl-tests
  double launch_us = 0;          // that a thread needs to launch a collective's kernel on one GPU
  double launch_channel_us = 0;  // more for each channel of it, before NCCL 2.22

  double of(NcclGpu gpu, GpuTerm term) const {
    return gpus[static_cast<std::size_t>(gpu)][static_cast<std::size_t>(term)];
  }
  double of(NcclNetwork network, NetworkTerm term) const {
    return networks[static_cast<std::size_t>(network)][static_cast<std::size_t>(term)];
  }
  bool operator==(const NcclConstants&) const = default;
};

std::string_view nccl_name(NcclGpu gpu);          // "ampere"
std::string_view nccl_name(NcclNetwork network);  // "infiniband"
std::string_view nccl_name(GpuTerm term);         // "ll_step_us"
std::string_view nccl_name(NetworkTerm term);     // "ll_hop_us"

// Reads a constants file. All faults at once: absent, unknown or negative values, unknown groups.
Expected<NcclConstants> read_nccl_constants(const std::string& file);
// Parses the value; `file` and `path` (JSON pointer) locate it in error messages.
Expected<NcclConstants> parse_nccl_constants(const nlohmann::ordered_json& json, const std::string& file,
                                             const std::string& path);

}  // namespace longhaul
