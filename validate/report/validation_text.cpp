// A validation report as text for a terminal, as Markdown and as CSV.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/core/csv.h"
#include "validate/report/validation_report.h"
#include "validate/report/validation_tables.h"

namespace longhaul {
namespace {

std::vector<const GateCheck*> told_checks(const GateReport& gates) {
  std::vector<const GateCheck*> told;
  for (const Verdict verdict : {Verdict::kFail, Verdict::kUndecided}) {
    for (const GateCheck& check : gates.checks) {
      if (check.verdict == verdict) told.push_back(&check);
    }
  }
  return told;
}

// "allowed: 10 % prediction error, 4 % slow-down against FILE of 2026-11-30"; says so where nothing is limited.
std::string limits_text(const ValidationReport& report) {
  std::vector<std::string> limits;
  if (report.max_error) limits.push_back(fmt::format("{:g} % prediction error", 100 * *report.max_error));
  if (!report.baseline.empty()) {
    limits.push_back(fmt::format("{:g} % slow-down against {} of {}", 100 * report.max_slowdown, report.baseline,
                                 report.baseline_date));
  }
  if (limits.empty()) return "no limits on times were asked for (--max-error, --baseline)";
  return fmt::format("allowed: {}", fmt::join(limits, ", "));
}

std::string csv_section(const char* section, const std::vector<ComparedRow>& rows, double scale) {
  std::string text;
  for (const ComparedRow& row : rows) {
    const bool measured = row.source != Source::kModel;
    const auto value = [&](double number) { return measured ? fmt::format("{:.9f}", number * scale) : ""; };
    text +=
        fmt::format("{},{},{},{},{:.9f},{:.9f},{:.9f},{},{},{},{},{}\n", section, csv_line({row.name}),
                    to_string(row.source), row.calls, row.predicted * scale, row.predicted_low * scale,
                    row.predicted_high * scale, value(row.measured), value(row.measured_low), value(row.measured_high),
                    measured ? fmt::format("{:.6f}", row.error()) : "", measured ? (row.inside() ? "yes" : "no") : "");
  }
  return text;
}

}  // namespace

bool passes(const ValidationReport& report) { return !report.gates.failed() && report.comparison.numerics_pass(); }

std::string validation_text(const ValidationReport& report) {
  const Comparison& of = report.comparison;
  std::string text = run_line(report) + "\n";
  if (!report.calibration.empty()) text += "predicted by: " + report.calibration + "\n";
  for (const std::string& line : of.identity.reductions) text += "reduced: " + line + "\n";
  for (const std::string& line : of.remarks) text += "note: " + line + "\n";
  for (const Exclusion& one : of.exclusions) text += fmt::format("left out: {}: {}\n", one.what, one.reason);
  if (!of.numerics.empty()) text += "\nNumerics, ||x - ref|| / ||ref||\n" + aligned_text(numerics_table(of));
  for (const TitledTable& one : comparison_tables(report)) text += "\n" + one.title + "\n" + aligned_text(one.table);
  if (!of.worst.sites.empty()) {
    text += fmt::format("\nThe {} worst ops by |predicted - measured|\n", of.worst.sites.size()) +
            aligned_text(worst_table(of.worst));
    for (const std::string& line : trait_lines(of.worst)) text += "  " + line + "\n";
  }
  text += "\nGates; " + limits_text(report) + "\n";
  for (const std::string& line : report.gates.remarks) text += "  note: " + line + "\n";
  for (const GateCheck* check : told_checks(report.gates)) {
    text += fmt::format("  {} {}: {}\n", to_string(check->verdict), check->suite, check->message);
  }
  return text + verdict_line(report) + "\n";
}

std::string validation_csv(const ValidationReport& report) {
  const Comparison& of = report.comparison;
  constexpr double kMilliseconds = 1e3;
  std::string text =
      "section,name,source,calls,predicted,predicted_low,predicted_high,measured,measured_low,measured_high,error,"
      "inside\n";
  text += csv_section("step_ms", {of.step, of.exposed_communication}, kMilliseconds);
  text += csv_section("kind_ms", of.kinds, kMilliseconds);
  text += csv_section("collective_ms", of.collectives, kMilliseconds);
  text += csv_section("rank_compute_ms", of.rank_compute, kMilliseconds);
  text += csv_section("rank_alone_ms", of.rank_alone, kMilliseconds);
  text += csv_section("stream_ms", of.streams, kMilliseconds);
  text += csv_section("peak_memory_bytes", of.peak_memory, 1);
  return text;
}

std::string validation_markdown(const ValidationReport& report) {
  const Comparison& of = report.comparison;
  std::string text = fmt::format("## longhaul validate: {}\n\n**{}**\n\n{}; {}.\n", of.strategy, verdict_line(report),
                                 run_line(report), limits_text(report));
  const std::vector<const GateCheck*> told = told_checks(report.gates);
  if (!told.empty()) text += "\n";
  for (const GateCheck* check : told) {
    text += fmt::format("- **{}** {}: {}\n", to_string(check->verdict), check->suite, check->message);
  }
  if (!of.identity.reductions.empty() || !of.remarks.empty() || !report.gates.remarks.empty()) text += "\n";
  for (const std::string& line : of.identity.reductions) text += "- reduced: " + line + "\n";
  for (const std::string& line : of.remarks) text += "- " + line + "\n";
  for (const std::string& line : report.gates.remarks) text += "- " + line + "\n";
  if (!of.numerics.empty()) text += "\n### Numerics\n\n" + markdown_text(numerics_table(of));
  for (const TitledTable& one : comparison_tables(report)) {
    text += "\n### " + one.title + "\n\n" + markdown_text(one.table);
  }
  if (!of.worst.sites.empty()) {
    text += "\n### Worst ops\n\n" + markdown_text(worst_table(of.worst)) + "\n";
    for (const std::string& line : trait_lines(of.worst)) text += "- " + line + "\n";
  }
  return text;
}

}  // namespace longhaul
