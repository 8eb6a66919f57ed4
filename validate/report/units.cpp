#include "validate/report/units.h"

#include <fmt/format.h>

#include <cmath>

namespace longhaul {
namespace {

// Four digits, fewer before the point than that.
std::string four_digits(double value) {
  const double size = std::abs(value);
  const int decimals = size >= 999.95 ? 0 : size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

std::string seconds_text(double seconds) {
  const double size = std::abs(seconds);
  if (size >= 1) return four_digits(seconds) + " s";
  if (size >= 1e-3) return four_digits(seconds * 1e3) + " ms";
  if (size >= 1e-6) return four_digits(seconds * 1e6) + " us";
  return fmt::format("{:.0f} ns", seconds * 1e9);
}

std::string bytes_text(double bytes) {
  const double size = std::abs(bytes);
  if (size >= 1e9) return four_digits(bytes / 1e9) + " GB";
  if (size >= 1e6) return four_digits(bytes / 1e6) + " MB";
  if (size >= 1e3) return four_digits(bytes / 1e3) + " kB";
  return fmt::format("{:.0f} B", bytes);
}

std::string percent_text(double fraction) { return fmt::format("{:+.1f} %", 100 * fraction); }

}  // namespace longhaul
