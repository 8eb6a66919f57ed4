// longhaul check: every error of any input file.
#include <fmt/format.h>

#include <memory>

#include "sim/cli/command.h"
#include "sim/scenario/check_file.h"
#include "sim/study/setup.h"

namespace longhaul {
namespace {

struct Options {
  GlobalOptions global;
  std::vector<std::string> files;
};

// What reading alone does not show: layouts and batches of a study that nothing can fill.
Errors study_faults(const std::string& file, const StudyOptions& options) {
  const Expected<Study> study = read_study(file, options);
  if (!study) return study.error();
  Errors errors;
  for (const StudyCase& study_case : study->cases) {
    const Expected<CaseSetup> setup = set_up_case(study_case, study->file);
    if (!setup) {
      errors.insert(errors.end(), setup.error().begin(), setup.error().end());
      continue;
    }
    for (const StrategyEntry& entry : study_case.strategies) {
      const Errors faults = entry_errors(*setup, entry);
      errors.insert(errors.end(), faults.begin(), faults.end());
    }
  }
  return errors;
}

int check(const Options& options) {
  const StudyOptions study = study_options(options.global.seed);
  Json files = Json::array();
  Errors all;
  std::string text;
  for (const std::string& file : options.files) {
    CheckedFile checked = check_input_file(file, study);
    const bool is_study = checked.kind == InputKind::kStudy;
    if (is_study && checked.errors.empty()) {
      // A bare name would be looked up among the shipped studies.
      checked.errors = study_faults(file.find('/') == std::string::npos ? "./" + file : file, study);
    }
    const std::string kind = checked.kind ? std::string(input_kind_name(*checked.kind)) : std::string("unknown");
    Json errors = Json::array();
    for (const InputError& error : checked.errors) {
      errors.push_back(
          {{"path", error.path}, {"message", error.message}, {"expected", error.expected}, {"nearest", error.nearest}});
    }
    files.push_back({{"file", file}, {"kind", kind}, {"errors", errors}});
    if (checked.errors.empty()) text += fmt::format("{}: valid {}\n", file, kind);
    all.insert(all.end(), checked.errors.begin(), checked.errors.end());
  }
  if (options.global.format() == Format::kJson) {
    print(files.dump(2) + "\n");
  } else if (!options.global.quiet) {
    print(text);
  }
  return all.empty() ? kExitDone : wrong_input(all);
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("check", "Validate input files and print every error");
  command->add_option("FILE", options->files, "Studies, topologies, devices, models, length tables")->required();
  add_global_options(*command, options->global, "longhaul check my-study.json my-topology.json");
  command->callback([&action, options] { action = [options] { return check(*options); }; });
}

}  // namespace longhaul
