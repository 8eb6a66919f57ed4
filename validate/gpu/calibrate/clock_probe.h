// The clock of the multiprocessors over a sample, from their cycle counters and the device's nanosecond timer.
//
// Before and after a sample a kernel of many blocks leaves, once a multiprocessor, what both show there. Counters of
// different multiprocessors cannot be compared, so each is compared with itself. Needs no CUDA.
#pragma once

#include <cstdint>
#include <span>

namespace longhaul {

struct ClockReading {
  std::uint32_t epoch = 0;  // of the probe that wrote it: older ones are left from an earlier sample
  std::uint64_t cycles = 0, nanoseconds = 0;
};

// Below this a reading of either counter (32 ns to 1 us apart, and the probe itself) is too much of the span.
inline constexpr std::uint64_t kShortestClockSpanNs = 40'000;

// Megahertz: the median over the multiprocessors that both probes of `epoch` met; 0 if there is none or the span is
// shorter than kShortestClockSpanNs. Both lists have an entry a multiprocessor (LH_ASSERT).
double clock_between(std::span<const ClockReading> before, std::span<const ClockReading> after, std::uint32_t epoch);

}  // namespace longhaul
