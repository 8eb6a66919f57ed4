#include "sim/cli/calibrate_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>

#include "validate/gpu/calibrate/budget.h"

namespace longhaul {
namespace {

struct ClassSum {
  std::size_t rows = 0;
  double seconds = 0;
};

struct PlannedRow {
  const CalibrationCall& call;
  double call_seconds, row_seconds;
};

std::vector<PlannedRow> timed(const std::vector<CalibrationCall>& plan, const KernelModel& model) {
  std::vector<PlannedRow> rows;
  for (const CalibrationCall& call : plan) {
    const double seconds = predicted_call_seconds(call, model);
    rows.push_back({call, seconds, predicted_row_seconds(call, seconds, LoopLimits())});
  }
  return rows;
}

std::array<ClassSum, kCallClassCount> sums_of(const std::vector<PlannedRow>& rows) {
  std::array<ClassSum, kCallClassCount> sums;
  for (const PlannedRow& row : rows) {
    ClassSum& sum = sums.at(static_cast<std::size_t>(row.call.call_class));
    ++sum.rows;
    sum.seconds += row.row_seconds;
  }
  return sums;
}

std::string csv_of(const std::vector<PlannedRow>& rows) {
  std::string text = fmt::format("{},predicted_ms,row_seconds\n", fmt::join(call_columns(), ","));
  for (const PlannedRow& row : rows) {
    text += fmt::format("{},{:.6f},{:.3f}\n", fmt::join(call_fields(row.call), ","), 1e3 * row.call_seconds,
                        row.row_seconds);
  }
  return text;
}

std::string json_of(const std::vector<PlannedRow>& rows) {
  Json classes = Json::array(), calls = Json::array();
  const auto sums = sums_of(rows);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].rows == 0) continue;
    classes.push_back({{"class", class_name(static_cast<CallClass>(i))},
                       {"rows", sums[i].rows},
                       {"predicted_seconds", sums[i].seconds}});
  }
  for (const PlannedRow& row : rows) {
    Json call;
    const std::vector<std::string> fields = call_fields(row.call);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (!fields[i].empty()) call[call_columns()[i]] = fields[i];
    }
    call["predicted_ms"] = 1e3 * row.call_seconds;
    call["row_seconds"] = row.row_seconds;
    calls.push_back(std::move(call));
  }
  return Json{{"schema", "calibration-plan/1"}, {"classes", classes}, {"calls", calls}}.dump(2) + "\n";
}

}  // namespace

std::string plan_text(const std::vector<CalibrationCall>& plan, const KernelModel& model, Format format) {
  const std::vector<PlannedRow> rows = timed(plan, model);
  if (format == Format::kCsv) return csv_of(rows);
  if (format == Format::kJson) return json_of(rows);
  std::string text = fmt::format("{:<14} {:>6} {:>10}\n", "class", "rows", "seconds");
  ClassSum all;
  const auto sums = sums_of(rows);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].rows == 0) continue;
    text +=
        fmt::format("{:<14} {:>6} {:>10.1f}\n", class_name(static_cast<CallClass>(i)), sums[i].rows, sums[i].seconds);
    all.rows += sums[i].rows;
    all.seconds += sums[i].seconds;
  }
  return text + fmt::format(
                    "{:<14} {:>6} {:>10.1f}\n\noverlap and collectives are tables of their own, as long as the GPUs "
                    "are many\n",
                    "all", all.rows, all.seconds);
}

std::string errors_text(const std::vector<ClassErrors>& classes, Format format) {
  if (format == Format::kJson) {
    Json list = Json::array();
    for (const ClassErrors& of : classes) {
      list.push_back({{"class", of.kernel_class},
                      {"rows", of.rows},
                      {"counted", of.counted},
                      {"median_error", of.median},
                      {"p90_error", of.p90},
                      {"covered", of.covered}});
    }
    return Json{{"schema", "calibration-errors/1"}, {"classes", list}}.dump(2) + "\n";
  }
  const bool csv = format == Format::kCsv;
  std::string text = csv ? "class,rows,counted,median_error,p90_error,covered\n"
                         : fmt::format("{:<44} {:>5} {:>8} {:>8} {:>6} {:>8}\n", "held out, rows of 0.05 ms and more",
                                       "rows", "counted", "median %", "p90 %", "in 90 %");
  for (const ClassErrors& of : classes) {
    text += csv ? fmt::format("{},{},{},{:.6f},{:.6f},{:.6f}\n", of.kernel_class, of.rows, of.counted, of.median,
                              of.p90, of.covered)
                : fmt::format("{:<44} {:>5} {:>8} {:>8.2f} {:>6.2f} {:>8.1f}\n", of.kernel_class, of.rows, of.counted,
                              100 * of.median, 100 * of.p90, 100 * of.covered);
  }
  return text;
}

}  // namespace longhaul
