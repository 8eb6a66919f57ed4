// longhaul verify: schedules executed in double precision on virtual ranks, against the undistributed reference. One
// strategy of a study in full, or all of them by a line each; on the study's documents and on random ones.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "sim/cli/one_entry.h"
#include "sim/cli/progress.h"
#include "sim/cli/verify_entry.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMostBatches = 1'000'000;

struct VerifyArguments {
  EntryOptions entry;
  VerifyRequest request;
};

// What is wrong with a tolerance; empty if nothing.
std::string tolerance_fault(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value > 0) return "";
  return fmt::format("is \"{}\"; expected a finite number above 0, like 1e-10", text);
}

Json error_json(double error) { return std::isfinite(error) ? Json(error) : Json(); }

Json quantities_json(const VerifyReport& report, double tolerance) {
  Json quantities = Json::array();
  for (const QuantityError& of : report.quantities) {
    quantities.push_back({{"name", of.name},
                          {"error", error_json(of.error)},
                          {"pass", of.error <= tolerance && of.missing == 0},
                          {"compared", of.compared},
                          {"missing", of.missing},
                          {"worst", of.worst}});
  }
  return quantities;
}

Json entry_json(const VerifyArguments& options, const std::string& label, const Verified& verified) {
  const VerifyReport& report = verified.report;
  Json json = {{"name", label},
               {"tolerance", options.request.tolerance},
               {"pass", verified.pass()},
               {"worst", error_json(verified.worst())},
               {"loss", report.loss},
               {"reduced", verified.reduced.changes},
               {"violations", report.violations},
               {"quantities", quantities_json(report, options.request.tolerance)}};
  if (options.request.batches > 0) {
    json["random"] = {{"batches", verified.random},
                      {"not_applicable", verified.refused},
                      {"worst", error_json(verified.random_worst)},
                      {"faults", verified.random_faults}};
  }
  return json;
}

std::string random_text(const Verified& verified) {
  return fmt::format("{} random batches{}: worst error {:.2e}", verified.random,
                     verified.refused == 0 ? "" : fmt::format(" ({} more are not applicable)", verified.refused),
                     verified.random_worst);
}

std::string report_text(const VerifyArguments& options, const Verified& verified) {
  if (options.entry.global.format() == Format::kJson) {
    Json json = {{"schema", "verify/1"}};
    json.update(entry_json(options, options.entry.strategy, verified));
    return json.dump(2) + "\n";
  }
  const VerifyReport& report = verified.report;
  const bool csv = options.entry.global.format() == Format::kCsv;
  std::string text = csv ? "name,error,pass,compared,missing\n"
                         : fmt::format(
                               "{}: {} on virtual ranks, {} ops, {} collectives, {:.2e} FLOP\nreduced: {}\n\n"
                               "  quantity            error  pass   compared\n",
                               options.entry.strategy, degrees_text(verified.degrees), report.ops, report.collectives,
                               report.flops, fmt::join(verified.reduced.changes, ", "));
  for (const QuantityError& of : report.quantities) {
    const char* pass = of.error <= options.request.tolerance && of.missing == 0 ? "yes" : "NO";
    text += csv ? fmt::format("{},{},{},{},{}\n", of.name, of.error, pass, of.compared, of.missing)
                : fmt::format("  {:<14} {:>10.2e}  {:<4} {:>10}{}\n", of.name, of.error, pass, of.compared,
                              of.missing > 0 ? fmt::format("  {} elements on no rank", of.missing) : "");
  }
  if (csv) return text;
  for (const std::string& violation : report.violations) text += "  violation: " + violation + "\n";
  if (options.request.batches > 0) text += "\n" + random_text(verified) + "\n";
  for (const std::string& fault : verified.random_faults) text += "  " + fault + "\n";
  return text + fmt::format("\n{}: worst error {:.2e}, tolerance {:.0e}\n", verified.pass() ? "pass" : "FAIL",
                            verified.worst(), options.request.tolerance);
}

int verify_one(const VerifyArguments& options) {
  const Expected<std::unique_ptr<StudyEntry>> read = read_entry(options.entry);
  if (!read) return wrong_input(read.error());
  const FoundEntry& found = (*read)->found;
  Progress progress(options.entry.global.quiet);
  VerifyRequest request = options.request;
  request.progress = [&](std::size_t done, std::size_t of, const std::string& phase) {
    progress.show(done, of, phase);
  };
  const auto verified = verify_entry((*read)->study, found, request);
  progress.clear();
  if (!verified) {
    const NotVerified& why = verified.error();
    if (!why.errors.empty()) return wrong_input(why.errors);
    return why.not_applicable.empty() ? does_not_fit(why.simulated) : not_applicable(*found.entry, why.not_applicable);
  }
  print(report_text(options, *verified));
  return verified->pass() ? kExitDone : kExitFailed;
}

// All entries of a study, or of one case: a line each.
struct AllVerified {
  Json strategies = Json::array();
  std::string table;
  std::string csv = "case,name,worst,pass,random_batches,not_applicable\n";
  Errors errors;
  bool pass = true;
  int compared = 0;
};

void add_line(const VerifyArguments& options, const StudyCase& of, const StrategyEntry& entry,
              const tl::expected<Verified, NotVerified>& verified, AllVerified& all) {
  Json json;
  std::string line, cells;
  if (verified) {
    json = entry_json(options, entry.label, *verified);
    line = fmt::format("{:>10.2e}  {:<4}", verified->worst(), verified->pass() ? "yes" : "NO");
    if (options.request.batches > 0) line += "  " + random_text(*verified);
    for (const std::string& fault : verified->random_faults) line += "\n      " + fault;
    for (const std::string& violation : verified->report.violations) line += "\n      violation: " + violation;
    cells = fmt::format("{},{},{},", verified->worst(), verified->pass() ? "yes" : "NO", verified->random);
    all.pass = all.pass && verified->pass();
    ++all.compared;
  } else {
    const NotVerified& why = verified.error();
    all.errors.insert(all.errors.end(), why.errors.begin(), why.errors.end());
    const std::string reason = why.not_applicable.empty() ? "does not fit" : why.not_applicable;
    json = {{"name", entry.label}, {"not_applicable", reason}};
    line = fmt::format("{:>10}  -     not applicable: {}", "-", reason);
    cells = fmt::format(",,,\"{}\"", reason);
  }
  json["case"] = of.name;
  all.strategies.push_back(std::move(json));
  all.table += fmt::format("  {:<44} {}\n", entry.label, line);
  all.csv += fmt::format("{},\"{}\",{}\n", of.name, entry.label, cells);
}

// What cannot be executed here keeps its line; the others go on.
tl::expected<Verified, NotVerified> verify_or_say_why(const Study& study, const FoundEntry& found,
                                                      const VerifyRequest& request) {
  try {
    return verify_entry(study, found, request);
  } catch (const LimitError& limit) {
    return tl::unexpected(NotVerified{{}, limit.what(), {}});
  }
}

int verify_all(const VerifyArguments& options) {
  const Expected<Study> study = read_study(options.entry.study, study_options(options.entry.global.seed));
  if (!study) return wrong_input(study.error());
  note_unused_seed(options.entry.global, *study);
  std::size_t count = 0;
  for (const StudyCase& of : study->cases) count += of.strategies.size();
  AllVerified all;
  Progress progress(options.entry.global.quiet);
  std::size_t done = 0;
  for (const StudyCase& of : study->cases) {
    if (!options.entry.case_name.empty() && of.name != options.entry.case_name) continue;
    all.table += fmt::format("{}\n  {:<44} {:>10}  {}\n", of.name, "strategy", "error", "pass");
    for (const StrategyEntry& entry : of.strategies) {
      progress.show(done++, count, entry.label);
      add_line(options, of, entry, verify_or_say_why(*study, {&of, &entry}, options.request), all);
    }
  }
  progress.clear();
  if (!all.errors.empty()) return wrong_input(all.errors);
  if (done == 0) return wrong_input(find_entry(*study, "", options.entry.case_name).error());
  switch (options.entry.global.format()) {
    case Format::kJson:
      print(Json({{"schema", "verify/1"}, {"pass", all.pass}, {"strategies", all.strategies}}).dump(2) + "\n");
      break;
    case Format::kCsv:
      print(all.csv);
      break;
    case Format::kTable:
      print(fmt::format("{}\n{}: {} strategies, tolerance {:.0e}\n", all.table, all.pass ? "pass" : "FAIL",
                        all.compared, options.request.tolerance));
      break;
  }
  if (all.compared == 0) return cannot("no strategy of the study can be verified; the lines say why");
  return all.pass ? kExitDone : kExitFailed;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto options = std::make_shared<VerifyArguments>();
  CLI::App* command =
      app.add_subcommand("verify", "Execute a schedule on virtual ranks and compare with the reference");
  command->add_option("--tolerance", options->request.tolerance, "Largest error max|x-ref| / max|ref|")
      ->check(CLI::Validator(tolerance_fault, "above 0"))
      ->capture_default_str();
  command
      ->add_option("--batches", options->request.batches,
                   "Random batches besides the study's own: at most 2,048 tokens, 1 to 64 documents a sequence")
      ->check(CLI::Range(std::int64_t{0}, kMostBatches))
      ->capture_default_str();
  add_entry_options(*command, options->entry, "longhaul verify four-way-h200 --strategy basp", true);
  command->callback([&action, options] {
    action = [options] { return options->entry.strategy.empty() ? verify_all(*options) : verify_one(*options); };
  });
}

}  // namespace longhaul
