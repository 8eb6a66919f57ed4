// A mixing function for hashes and counter-based random numbers: every input bit moves every output bit. The same on
// every machine; not cryptographic.
#pragma once

#include <cstdint>

namespace longhaul {

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace longhaul
