// Strong types for the quantities that are easy to confuse: bytes against bits, rates against amounts.
// 1 GB is 10^9 bytes; GiB is spelled out. Only `Bytes / BytesPerSecond -> seconds` style operations exist.
#pragma once

#include <compare>
#include <cstdint>

namespace longhaul {

// SI prefixes, to bring what a table prints to seconds and bytes.
inline constexpr double kMilli = 1e-3;
inline constexpr double kMicro = 1e-6;
inline constexpr double kGiga = 1e9;

// An amount of data in bytes; exact.
struct Bytes {
  std::int64_t value = 0;
  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes operator+(Bytes other) const { return {value + other.value}; }
  constexpr Bytes operator-(Bytes other) const { return {value - other.value}; }
  constexpr Bytes operator*(std::int64_t times) const { return {value * times}; }
  constexpr Bytes& operator+=(Bytes other) {
    value += other.value;
    return *this;
  }
};

// Floating-point operations. A double: totals of a large step pass 2^63, single operations stay exact below 2^53.
struct Flops {
  double value = 0;
  constexpr auto operator<=>(const Flops&) const = default;
  constexpr Flops operator+(Flops other) const { return {value + other.value}; }
  constexpr Flops& operator+=(Flops other) {
    value += other.value;
    return *this;
  }
};

struct BytesPerSecond {
  double value = 0;
  constexpr auto operator<=>(const BytesPerSecond&) const = default;
  static constexpr BytesPerSecond from_GBps(double gigabytes) { return {gigabytes * 1e9}; }
  static constexpr BytesPerSecond from_Gbit_per_s(double gigabits) { return {gigabits * 1e9 / 8}; }
};

struct FlopsPerSecond {
  double value = 0;
  constexpr auto operator<=>(const FlopsPerSecond&) const = default;
};

// Seconds, a double on its way to being rounded once into a Time.
constexpr double operator/(Bytes bytes, BytesPerSecond rate) { return static_cast<double>(bytes.value) / rate.value; }
constexpr double operator/(Flops work, FlopsPerSecond rate) { return work.value / rate.value; }

}  // namespace longhaul
