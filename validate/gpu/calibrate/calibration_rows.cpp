#include "validate/gpu/calibrate/calibration_rows.h"

#include <fmt/format.h>

namespace longhaul {
namespace {

constexpr const char* kMeasuredColumns[] = {"impl",      "ms_median",         "ms_min",          "ms_max",
                                            "ms_mean",   "deviation_percent", "samples",         "dropped",
                                            "clock_mhz", "batch_ms",          "batch_clock_mhz", "stop"};

// 0 stands for a clock that nobody could tell.
std::string clock_text(double mhz) { return mhz > 0 ? fmt::format("{:.0f}", mhz) : ""; }

}  // namespace

ResultFormat calibration_format(const Bench& bench, const LoopLimits& limits) {
  ResultFormat format;
  format.identity = bench.identity();
  format.identity.push_back(
      fmt::format("method: ms: calls alone, L2 flushed, launch cost kept out: {} samples or more over {} s or more, "
                  "until the error "
                  "of the mean is below {} %, at most {} s; samples below {} of {:.0f} MHz dropped; batch_ms: back to "
                  "back for {} s",
                  limits.fewest_samples, limits.least_seconds, 100 * limits.noise.limit, limits.most_seconds,
                  limits.throttle_ratio, limits.default_clock_mhz, limits.batch_seconds));
  format.notes = bench.notes();
  format.columns = call_columns();
  format.key_columns = call_columns();
  for (const char* column : kMeasuredColumns) format.columns.emplace_back(column);
  return format;
}

std::vector<std::string> calibration_row(const CalibrationCall& call, const std::string& implementation,
                                         const Measurement& measured) {
  std::vector<std::string> row = call_fields(call);
  row.push_back(implementation);
  for (const double ms : {measured.ms.median, measured.ms.min, measured.ms.max, measured.ms.mean}) {
    row.push_back(fmt::format("{:.6f}", ms));
  }
  row.push_back(fmt::format("{:.3f}", 100 * measured.deviation));
  row.push_back(fmt::to_string(measured.ms.count));
  row.push_back(fmt::to_string(measured.dropped));
  row.push_back(clock_text(measured.clock_mhz));
  row.push_back(fmt::format("{:.6f}", measured.batch_ms));
  row.push_back(clock_text(measured.batch_clock_mhz));
  row.emplace_back(stop_name(measured.stop));
  return row;
}

}  // namespace longhaul
