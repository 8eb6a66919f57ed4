// bfloat16 on the host: the upper half of an IEEE float (1 sign, 8 exponent, 7 stored significand bits). The same 16
// bits as CUDA's __nv_bfloat16, without its headers, so that references and tests build where CUDA is not.
#pragma once

#include <bit>
#include <cstdint>

namespace longhaul {

struct Bf16 {
  std::uint16_t bits = 0;
};

// Exact.
constexpr float to_float(Bf16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

// Rounds to nearest, ties to even; overflows to infinity; a NaN stays a NaN.
constexpr Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  const std::uint32_t round = 0x7FFFU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>((bits + round) >> 16)};
}

}  // namespace longhaul
