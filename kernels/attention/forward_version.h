// Versions of the Hopper forward kernel: where scores read their queries from. What each was predicted and measured at,
// and those that are not here: docs/performance-log.md, "Attention forward on Hopper" and "Forward at the power limit".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul {

enum class HopperForwardVersion : std::uint8_t {
  kA,  // from shared memory
  kE,  // from registers, loaded once a tile: a third less traffic of shared memory in scores
};
inline constexpr HopperForwardVersion kDefaultHopperForward = HopperForwardVersion::kE;

// "A", "E", in order.
inline const std::vector<std::string>& hopper_forward_names() {
  static const std::vector<std::string> names = {"A", "E"};
  return names;
}

}  // namespace longhaul
