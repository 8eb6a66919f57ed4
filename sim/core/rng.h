// Named, seeded random streams that give the same numbers on every compiler and standard library.
//
// A stream is keyed by (seed, name): adding a stream never moves the numbers of another. std:: distributions differ
// between libraries, so the few needed here are written on top of the engine.
#pragma once

#include <cstdint>
#include <random>
#include <string_view>

namespace longhaul {

class Rng {
 public:
  Rng(std::uint64_t seed, std::string_view stream);

  std::uint64_t bits() { return engine_(); }
  // Uniform in [0, 1) with 53 bits.
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }
  // Uniform in [low, high], without modulo bias.
  std::int64_t integer(std::int64_t low, std::int64_t high);

 private:
  std::mt19937_64 engine_;
};

}  // namespace longhaul
