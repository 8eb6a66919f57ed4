// Versions of the Hopper backward kernel: when a step makes dQ and how it leaves. What each was predicted and measured
// at: docs/performance-log.md, "Attention backward on Hopper".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul {

enum class HopperBackwardVersion : std::uint8_t {
  kC,  // dQ last, both warpgroups in step; staged in shared memory, added by the copy engine after all products
  kD,  // dQ before dK, and leaves beside it
  kE,  // dQ of a step in the next one: the warpgroups need not be in step
  kF,  // E, added from registers by the threads: no staging, three query tiles in flight
  kG,  // D, added as in F
  kH,  // F, added another step later, beside the scores
};
inline constexpr HopperBackwardVersion kDefaultHopperBackward = HopperBackwardVersion::kD;

// "C" .. "H", in order.
inline const std::vector<std::string>& hopper_backward_names() {
  static const std::vector<std::string> names = {"C", "D", "E", "F", "G", "H"};
  return names;
}

}  // namespace longhaul
