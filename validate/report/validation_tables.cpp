#include "validate/report/validation_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "validate/report/units.h"

namespace longhaul {
namespace {

constexpr char kNothing[] = "-";

TextTable row_table(const std::string& first, const std::vector<ComparedRow>& rows, bool is_bytes, bool calls) {
  TextTable table;
  table.columns = {first, "predicted", "low to high", "measured", "interval", "error", "inside"};
  table.to_the_right = {false, true, true, true, true, true, false};
  if (calls) {
    table.columns.insert(table.columns.begin() + 1, {"calls", "share"});
    table.to_the_right.insert(table.to_the_right.begin() + 1, {true, true});
  }
  const auto amount = [&](double value) { return is_bytes ? bytes_text(value) : seconds_text(value); };
  const auto range = [&](double low, double high) { return fmt::format("{} to {}", amount(low), amount(high)); };
  for (const ComparedRow& row : rows) {
    const bool has_measure = row.source != Source::kModel;
    std::vector<std::string> cells = {row.source == Source::kComposed ? row.name + " (composed)" : row.name};
    if (calls) {
      cells.push_back(fmt::format("{}", row.calls));
      cells.push_back(has_measure ? fmt::format("{:.1f} %", 100 * row.share) : kNothing);
    }
    cells.push_back(amount(row.predicted));
    cells.push_back(row.predicted_low == row.predicted_high ? kNothing : range(row.predicted_low, row.predicted_high));
    cells.push_back(has_measure ? amount(row.measured) : "model");
    const bool spreads = has_measure && row.measured_low < row.measured_high;
    cells.push_back(spreads ? range(row.measured_low, row.measured_high) : kNothing);
    cells.push_back(has_measure ? percent_text(row.error()) : kNothing);
    const bool judged = has_measure && row.predicted_low < row.predicted_high;
    cells.push_back(!judged ? kNothing : row.inside() ? "yes" : "no");
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string placement_text(const Comparison& of) {
  const std::string count = of.hardware.devices == 1 ? "one" : fmt::format("{}", of.hardware.devices);
  if (of.placement == RankPlacement::kVirtual) {
    return fmt::format("{} virtual ranks of {} {}", of.ranks, count, of.hardware.device);
  }
  return fmt::format("{} ranks on {} {}", of.ranks, count, of.hardware.device);
}

std::string versions_text(const Comparison& of) {
  const HardwareInfo& hardware = of.hardware;
  std::vector<std::string> parts;
  const auto add = [&](const char* name, const std::string& version) {
    if (!version.empty()) parts.push_back(fmt::format("{} {}", name, version));
  };
  add("driver", hardware.driver);
  add("CUDA", hardware.cuda);
  add("cuBLAS", hardware.cublas);
  add("cuDNN", hardware.cudnn);
  add("NCCL", hardware.nccl);
  if (of.step_clock_mhz > 0) parts.push_back(fmt::format("SM clock in steps {} MHz", of.step_clock_mhz));
  if (hardware.sm_clock_before_mhz > 0 && hardware.sm_clock_after_mhz > 0) {
    parts.push_back(fmt::format("SM clock {} to {} MHz", hardware.sm_clock_before_mhz, hardware.sm_clock_after_mhz));
  }
  if (hardware.temperature_after_c > 0) {
    parts.push_back(fmt::format("{} to {} C", hardware.temperature_before_c, hardware.temperature_after_c));
  }
  if (hardware.power_after_w > 0) {
    parts.push_back(fmt::format("{} to {} W", hardware.power_before_w, hardware.power_after_w));
  }
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", "));
}

}  // namespace

std::vector<TitledTable> comparison_tables(const ValidationReport& report) {
  const Comparison& of = report.comparison;
  std::vector<TitledTable> tables;
  const auto add = [&](const char* title, const char* first, const std::vector<ComparedRow>& rows, bool is_bytes,
                       bool calls) {
    if (!rows.empty()) tables.push_back({title, row_table(first, rows, is_bytes, calls)});
  };
  add("The step", "part", {of.step, of.exposed_communication}, false, false);
  add("Kernels by kind, all ranks", "op kind", of.kinds, false, true);
  add("Collectives", "collective", of.collectives, false, true);
  add("Kernel time by rank", "rank", of.rank_compute, false, true);
  add(of.placement == RankPlacement::kVirtual ? "Each rank alone, undisturbed, without transfers"
                                              : "Each rank's step, undisturbed",
      "rank", of.rank_alone, false, false);
  add("By stream, all ranks", "stream", of.streams, false, true);
  add("Peak memory (tensors and planned scratch; measured: on the device, of a virtual rank as allocated)", "rank",
      of.peak_memory, true, false);
  return tables;
}

TextTable numerics_table(const Comparison& comparison) {
  TextTable table;
  table.columns = {"quantity", "against", "error", "limit", "undistributed", "elements", "pass"};
  table.to_the_right = {false, false, true, true, true, true, false};
  for (const NumericsResult& one : comparison.numerics) {
    table.rows.push_back({one.quantity, one.reference, fmt::format("{:.2e}", one.error),
                          fmt::format("{:.2e}", one.limit),
                          one.undistributed_error > 0 ? fmt::format("{:.2e}", one.undistributed_error) : kNothing,
                          fmt::format("{}", one.elements), one.pass ? "yes" : "NO, " + one.worst});
  }
  return table;
}

TextTable worst_table(const WorstOps& worst) {
  TextTable table;
  table.columns = {"op", "pass", "shape", "kernel", "calls", "predicted", "measured", "difference", "error"};
  table.to_the_right = {false, false, false, false, true, true, true, true, true};
  for (const ComparedSite& site : worst.sites) {
    const ComparedRow& row = site.row;
    table.rows.push_back({site.label, site.pass, site.shape, site.kernel.empty() ? kNothing : site.kernel,
                          fmt::format("{}", row.calls), seconds_text(row.predicted), seconds_text(row.measured),
                          seconds_text(row.predicted - row.measured), percent_text(row.error())});
  }
  return table;
}

std::vector<std::string> trait_lines(const WorstOps& worst) {
  std::vector<std::string> lines;
  for (const Trait& trait : worst.traits) {
    lines.push_back(fmt::format("{} of {} have {} \"{}\" ({} of {} in all; by chance {:.2g} %)", trait.worst,
                                trait.worst_of, trait.name, trait.value, trait.others, trait.others_of,
                                100 * trait.chance));
  }
  if (lines.empty() && !worst.sites.empty()) {
    lines.push_back("Nothing that at least half of them share is rarer elsewhere.");
  }
  return lines;
}

std::string run_line(const ValidationReport& report) {
  const Comparison& of = report.comparison;
  return fmt::format("{}{} on {}{}, {} repeats, {}", of.strategy,
                     report.layout.empty() ? "" : ", " + report.layout + ",", placement_text(of), versions_text(of),
                     of.repeats, of.identity.date);
}

std::string verdict_line(const ValidationReport& report) {
  const GateReport& gates = report.gates;
  const int failed = gates.count(Verdict::kFail);
  const int undecided = gates.count(Verdict::kUndecided);
  const std::string doubt = undecided > 0 ? fmt::format(", {} undecided", undecided) : "";
  if (gates.checks.empty()) return "no gates were checked";
  if (failed == 0) return fmt::format("pass: {} checks{}", gates.checks.size(), doubt);
  std::vector<std::string> names;
  constexpr std::size_t kNamed = 8;
  for (const GateCheck& check : gates.checks) {
    if (check.verdict == Verdict::kFail && names.size() < kNamed) names.push_back(check.name);
  }
  const std::size_t rest = static_cast<std::size_t>(failed) - names.size();
  return fmt::format("FAIL: {} of {} checks{}: {}{}", failed, gates.checks.size(), doubt, fmt::join(names, ", "),
                     rest > 0 ? fmt::format(" and {} more", rest) : "");
}

}  // namespace longhaul
