// longhaul verify: one strategy's schedule, executed in double precision on virtual ranks, against the undistributed
// reference.
#include "validate/cpu/verify.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <memory>

#include "sim/cli/one_entry.h"
#include "sim/cli/progress.h"
#include "sim/study/entry_run.h"
#include "sim/study/reduce.h"

namespace longhaul {
namespace {

struct Options {
  EntryOptions entry;
  double tolerance = 1e-10;
};

// What is wrong with a tolerance; empty if nothing.
std::string tolerance_fault(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value > 0) return "";
  return fmt::format("is \"{}\"; expected a finite number above 0, like 1e-10", text);
}

Json error_json(double error) { return std::isfinite(error) ? Json(error) : Json(); }

std::string report_text(const Options& options, const VerifyReport& report, const ReducedCase& reduced,
                        const Degrees& degrees) {
  if (options.entry.global.format() == Format::kJson) {
    Json quantities = Json::array();
    for (const QuantityError& of : report.quantities) {
      quantities.push_back({{"name", of.name},
                            {"error", error_json(of.error)},
                            {"pass", of.error <= options.tolerance && of.missing == 0},
                            {"compared", of.compared},
                            {"missing", of.missing},
                            {"worst", of.worst}});
    }
    const Json json = {
        {"schema", "verify/1"},       {"name", options.entry.strategy},    {"tolerance", options.tolerance},
        {"pass", report.pass},        {"worst", error_json(report.worst)}, {"loss", report.loss},
        {"reduced", reduced.changes}, {"violations", report.violations},   {"quantities", quantities}};
    return json.dump(2) + "\n";
  }
  const bool csv = options.entry.global.format() == Format::kCsv;
  std::string text = csv ? "name,error,pass,compared,missing\n"
                         : fmt::format(
                               "{}: {} on virtual ranks, {} ops, {} collectives, {:.2e} FLOP\nreduced: {}\n\n"
                               "  quantity            error  pass   compared\n",
                               options.entry.strategy, degrees_text(degrees), report.ops, report.collectives,
                               report.flops, fmt::join(reduced.changes, ", "));
  for (const QuantityError& of : report.quantities) {
    const char* pass = of.error <= options.tolerance && of.missing == 0 ? "yes" : "NO";
    text += csv ? fmt::format("{},{},{},{},{}\n", of.name, of.error, pass, of.compared, of.missing)
                : fmt::format("  {:<14} {:>10.2e}  {:<4} {:>10}{}\n", of.name, of.error, pass, of.compared,
                              of.missing > 0 ? fmt::format("  {} elements on no rank", of.missing) : "");
  }
  if (csv) return text;
  for (const std::string& violation : report.violations) text += "  violation: " + violation + "\n";
  text += fmt::format("\n{}: worst error {:.2e}, tolerance {:.0e}\n", report.pass ? "pass" : "FAIL", report.worst,
                      options.tolerance);
  return text;
}

int run_verify(const Options& options) {
  const Expected<std::unique_ptr<StudyEntry>> read = read_entry(options.entry);
  if (!read) return wrong_input(read.error());
  const StrategyEntry& entry = *(*read)->found.entry;
  const Expected<CaseSetup> full = set_up_case(*(*read)->found.study_case, (*read)->study.file);
  if (!full) return wrong_input(full.error());
  const Errors errors = entry_errors(*full, entry);
  if (!errors.empty()) return wrong_input(errors);
  Progress progress(options.entry.global.quiet);
  constexpr std::size_t kPhases = 3;
  progress.show(0, kPhases, "simulating at real size: does it fit?");
  const EntryResult simulated = run_entry(*full, entry, TraceMode::kNone);
  if (!simulated.fits()) progress.clear();
  if (const int code = runs_and_fits(entry, simulated); code != kExitDone) return code;
  const Degrees& degrees = simulated.degrees;

  progress.show(1, kPhases, "planning the reduced case");
  const ReducedCase reduced = reduce_case(*full->study_case, degrees.pp);
  const Expected<CaseSetup> setup = set_up_case(reduced.study_case, (*read)->study.file);
  if (!setup) return wrong_input(setup.error());
  const Planned planned = plan_entry(*setup, entry, degrees, 0);
  if (!planned) return not_applicable(entry, planned.error());
  progress.show(2, kPhases, "executing on virtual ranks and without distribution");
  VerifyOptions verify_options;
  verify_options.tolerance = options.tolerance;
  const VerifyReport report = verify(*planned->schedule, verify_options);
  progress.clear();
  print(report_text(options, report, reduced, degrees));
  return report.pass ? kExitDone : kExitFailed;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("verify", "Execute a schedule on virtual ranks and compare with the reference");
  command->add_option("--tolerance", options->tolerance, "Largest error max|x-ref| / max|ref|")
      ->check(CLI::Validator(tolerance_fault, "above 0"))
      ->capture_default_str();
  add_entry_options(*command, options->entry, "longhaul verify four-way-h200 --strategy basp");
  command->callback([&action, options] { action = [options] { return run_verify(*options); }; });
}

}  // namespace longhaul
