#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/core/csv.h"
#include "sim/core/json.h"
#include "validate/accuracy/kernels.h"

namespace longhaul {
namespace {

constexpr double kMsPerSecond = 1e3;

std::string verdict_text(const KernelErrors& group) {
  if (!group.target_median || group.rows == 0) return "";
  std::string text = group.met() ? "  pass" : "  MISS";
  text += group.target_p90 ? fmt::format(" ({:g} / {:g})", *group.target_median, *group.target_p90)
                           : fmt::format(" ({:g})", *group.target_median);
  if (!group.covered_well()) text += ", interval MISS (85 to 97)";
  return text;
}

std::string line_of(const KernelErrors& group) {
  if (group.rows == 0) return fmt::format("{:<58} {:>5}\n", group.name, 0);
  return fmt::format("{:<58} {:>5} {:>7.1f} {:>7.1f} {:>+7.1f} {:>8.0f}{}\n", group.name, group.rows, group.median,
                     group.p90, group.bias, group.covered, verdict_text(group));
}

Json group_json(const KernelErrors& group) {
  Json out = {{"kind", group.kind}, {"name", group.name}, {"rows", group.rows}};
  if (group.rows > 0) {
    out["median_percent"] = group.median;
    out["p90_percent"] = group.p90;
    out["bias_percent"] = group.bias;
    out["interval_covers_percent"] = group.covered;
  }
  if (group.target_median) {
    out["target_median_percent"] = *group.target_median;
    if (group.target_p90) out["target_p90_percent"] = *group.target_p90;
    out["met"] = group.met();
    out["interval_met"] = group.covered_well();
  }
  return out;
}

std::string row_csv(const char* kind, const FittedRow& fitted) {
  const KernelRow& row = fitted.row;
  return csv_line({kind,
                   fitted.kernel_class,
                   "",
                   "",
                   "",
                   "",
                   "",
                   "",
                   "",
                   row.file,
                   std::to_string(row.line),
                   row.name,
                   row.op,
                   row.pass,
                   row.impl,
                   fmt::format("{:.6f}", row.seconds * kMsPerSecond),
                   fmt::format("{:.1f}", 100 * spread_of(row)),
                   fmt::format("{:.6f}", fitted.held_out * kMsPerSecond),
                   fmt::format("{:.6f}", fitted.held_out_low * kMsPerSecond),
                   fmt::format("{:.6f}", fitted.held_out_high * kMsPerSecond),
                   fmt::format("{:.2f}", 100 * (fitted.held_out / row.seconds - 1))}) +
         "\n";
}

}  // namespace

std::string kernels_table(const KernelAccuracy& accuracy, const std::string& file) {
  std::string out = file.empty() ? "Kernels of one H200: each row predicted by a fit without the rows of its group"
                                 : fmt::format("{}: each row predicted by the shipped calibration", file);
  out +=
      "; rows of 0.05 ms and more whose\nsamples spread by less than 10 %. pass and MISS: within the target (median / "
      "p90) or not; covers: rows inside the\n90 % interval.";
  out += file.empty() ? " Published: calls of others on H100 and A100 (validate/data/kernels).\n" : "\n";
  const char* kind = "";
  for (const KernelErrors& group : accuracy.groups) {
    if (group.kind != kind) {
      kind = group.kind.c_str();
      out += fmt::format("\n{:<58} {:>5} {:>7} {:>7} {:>7} {:>8}\n", fmt::format("by {}, error in %", group.kind),
                         "rows", "median", "p90", "bias", "covers %");
    }
    out += line_of(group);
  }
  return out;
}

std::string kernels_json(const KernelAccuracy& accuracy) {
  Json groups = Json::array();
  for (const KernelErrors& group : accuracy.groups) groups.push_back(group_json(group));
  const Json out = {{"schema", "accuracy/1"}, {"table", "kernels"}, {"device", "h200"}, {"groups", groups}};
  return out.dump(2) + "\n";
}

std::string kernels_csv(const KernelAccuracy& accuracy) {
  std::string out =
      "kind,name,rows,median_percent,p90_percent,bias_percent,covers_percent,target_median,target_p90,file,line,row,op,"
      "pass,impl,measured_ms,spread_percent,predicted_ms,low_ms,high_ms,error_percent\n";
  for (const KernelErrors& group : accuracy.groups) {
    std::vector<std::string> fields = {group.kind,
                                       group.name,
                                       std::to_string(group.rows),
                                       fmt::format("{:.2f}", group.median),
                                       fmt::format("{:.2f}", group.p90),
                                       fmt::format("{:.2f}", group.bias),
                                       fmt::format("{:.1f}", group.covered),
                                       csv_number(group.target_median),
                                       csv_number(group.target_p90)};
    fields.resize(21);
    out += csv_line(fields) + "\n";
  }
  for (const FittedRow& row : accuracy.rows) {
    if (!row.kernel_class.empty()) out += row_csv("row", row);
  }
  for (const FittedRow& row : accuracy.published) out += row_csv("published row", row);
  for (const FittedRow& row : accuracy.published_aside) out += row_csv("published aside row", row);
  for (const FittedRow& row : accuracy.aside) out += row_csv("aside row", row);
  return out;
}

}  // namespace longhaul
