// Simulated time: integer picoseconds in a strong type.
//
// An int64 of picoseconds spans about 106 days; a step beyond them is a limit of the model, a LimitError. Durations
// come out of the cost and network models as double seconds and are rounded to picoseconds exactly once, by
// `Time::from_seconds`.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

#include "sim/core/invariant.h"

namespace longhaul {

// Throws the LimitError of a time that an int64 of picoseconds does not hold.
[[noreturn]] void throw_time_limit();

// A point in simulated time or a duration, in picoseconds. Addition and subtraction throw LimitError on overflow.
class Time {
 public:
  constexpr Time() = default;
  static constexpr Time from_ps(std::int64_t ps) { return Time(ps); }
  static constexpr Time zero() { return Time(0); }
  static constexpr Time max() { return Time(std::numeric_limits<std::int64_t>::max()); }

  // Rounds to the nearest picosecond, ties away from zero. `seconds` must be finite; LimitError beyond 106 days.
  static Time from_seconds(double seconds) {
    LH_ASSERT(std::isfinite(seconds), "a duration of {} s", seconds);
    const double ps = seconds * 1e12;
    if (ps >= 0x1p63 || ps <= -0x1p63) throw_time_limit();
    return Time(static_cast<std::int64_t>(ps < 0 ? ps - 0.5 : ps + 0.5));
  }
  static Time from_us(double us) { return from_seconds(us * 1e-6); }

  constexpr std::int64_t ps() const { return ps_; }
  constexpr double seconds() const { return static_cast<double>(ps_) * 1e-12; }
  constexpr double ms() const { return static_cast<double>(ps_) * 1e-9; }
  constexpr double us() const { return static_cast<double>(ps_) * 1e-6; }

  constexpr auto operator<=>(const Time&) const = default;
  Time operator+(Time other) const {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(ps_, other.ps_, &sum)) throw_time_limit();
    return Time(sum);
  }
  Time operator-(Time other) const {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(ps_, other.ps_, &difference)) throw_time_limit();
    return Time(difference);
  }
  Time& operator+=(Time other) { return *this = *this + other; }
  Time& operator-=(Time other) { return *this = *this - other; }

 private:
  explicit constexpr Time(std::int64_t ps) : ps_(ps) {}
  std::int64_t ps_ = 0;
};

}  // namespace longhaul
