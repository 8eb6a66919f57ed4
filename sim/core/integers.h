// Arithmetic of counts (tokens, rows, tiles, bytes) that every layer needs.
#pragma once

#include <cstdint>

namespace longhaul {

// The smallest count of parts of `by` that hold `value`: value / by, rounded up. Both positive, value may be 0.
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// A count in a formula of rates; exact below 2^53.
constexpr double as_double(std::int64_t count) { return static_cast<double>(count); }

}  // namespace longhaul
