// longhaul check: every error of any input file.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "sim/cli/command.h"
#include "sim/core/data_files.h"
#include "sim/cost/calibration.h"
#include "sim/scenario/check_file.h"
#include "sim/study/setup.h"

namespace longhaul {
namespace {

struct CheckArguments {
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
      append(errors, setup.error());
      continue;
    }
    for (const StrategyEntry& entry : study_case.strategies) {
      const Errors faults = entry_errors(*setup, entry);
      append(errors, faults);
    }
  }
  return errors;
}

struct Checked {
  std::string kind = "unknown";
  Errors errors;
};

// A name without a folder and an ending that is no file here is looked up among what ships: a study, a topology, ...
std::optional<std::pair<DataKind, std::string>> shipped(const std::string& name) {
  std::error_code error;
  if (std::filesystem::exists(name, error)) return std::nullopt;
  for (const DataKind kind :
       {DataKind::kStudy, DataKind::kTopology, DataKind::kModel, DataKind::kLengths, DataKind::kDevice}) {
    if (is_data_path(kind, name)) continue;
    if (const std::optional<std::string> file = find_data_file(kind, name)) return std::pair(kind, *file);
  }
  return std::nullopt;
}

std::string nearest_shipped(const std::string& name) {
  std::vector<std::string> names;
  for (const DataKind kind :
       {DataKind::kStudy, DataKind::kTopology, DataKind::kModel, DataKind::kLengths, DataKind::kDevice}) {
    const std::vector<std::string> of = list_data_names(kind);
    names.insert(names.end(), of.begin(), of.end());
  }
  return nearest_name(name, names);
}

bool is_calibration(const std::string& file) {
  const std::optional<std::string> text = read_text_file(file);
  if (!text) return false;
  const Expected<Json> value = parse_json(*text, file);
  return value && value->is_object() && value->contains("schema") && (*value)["schema"] == "calibration/3";
}

Checked check_one(const std::string& name, const StudyOptions& options) {
  const auto found = shipped(name);
  if (found && found->first == DataKind::kStudy) return {"study", study_faults(name, options)};
  const std::string file = found ? found->second : name;
  if (is_calibration(file)) {
    const Expected<Calibration> calibration = read_calibration(file);
    return {"calibration", calibration ? Errors{} : calibration.error()};
  }
  CheckedFile checked = check_input_file(file, options);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    const std::string nearest = nearest_shipped(name);
    checked.errors = {{name, "", "there is no such file and no such shipped name",
                       "a study, topology, device, calibration, model or length file", nearest}};
  }
  if (checked.kind == InputKind::kStudy && checked.errors.empty()) {
    // A bare name would be looked up among the shipped studies.
    checked.errors = study_faults(file.find('/') == std::string::npos ? "./" + file : file, options);
  }
  return {checked.kind ? std::string(input_kind_name(*checked.kind)) : "unknown", checked.errors};
}

int check(const CheckArguments& options) {
  const StudyOptions study = study_options(options.global.seed);
  Json files = Json::array();
  Errors all;
  std::string text;
  for (const std::string& file : options.files) {
    const Checked checked = check_one(file, study);
    Json errors = Json::array();
    for (const InputError& error : checked.errors) {
      errors.push_back(
          {{"path", error.path}, {"message", error.message}, {"expected", error.expected}, {"nearest", error.nearest}});
    }
    files.push_back({{"file", file}, {"kind", checked.kind}, {"errors", errors}});
    if (checked.errors.empty()) text += fmt::format("{}: valid {}\n", file, checked.kind);
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
  auto options = std::make_shared<CheckArguments>();
  CLI::App* command = app.add_subcommand("check", "Validate input files and print every error");
  command
      ->add_option("FILE", options->files,
                   "Studies, topologies, devices, calibrations, models, length files; or shipped names")
      ->required();
  add_global_options(*command, options->global, "longhaul check my-study.json my-topology.json");
  command->callback([&action, options] { action = [options] { return check(*options); }; });
}

}  // namespace longhaul
