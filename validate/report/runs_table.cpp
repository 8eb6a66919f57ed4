#include "validate/report/runs_table.h"

#include <algorithm>
#include <filesystem>

#include "sim/workload/batch.h"
#include "validate/report/composed_step.h"
#include "validate/report/prepared_run.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// Why a run is no accuracy data; empty if it is.
std::string why_left_out(const KeptRun& run) {
  if (run.origin == "emulated") return "emulated on the host: no device ran it";
  if (run.origin == "synthetic") return "synthetic: made for tests";
  if (run.origin != "measured") return "a bare record: it does not say which study ran; keep runs with --keep";
  if (run.record.hardware.device.empty() || run.record.hardware.device == "host") return "no device ran it";
  if (run.record.identity.date.empty() || run.record.hardware.driver.empty()) {
    return "its date or driver is not known";
  }
  if (!run.record.failure.kind.empty()) return "it ended early: " + run.record.failure.message;
  return "";
}

}  // namespace

tl::expected<JudgedRun, std::string> judge_run(const KeptRun& run, const std::string& file) {
  const auto refuse = [](const Errors& errors) { return tl::unexpected(errors.front().to_string()); };
  const Expected<Prepared> prepared = prepare_run(run.study, file, run.strategy, run.study_case);
  if (!prepared) return refuse(prepared.error());
  const CaseSetup& setup = *(*prepared)->setup;
  const Prediction prediction = predict_run(setup, (*prepared)->planned);
  const Errors faults = record_faults(prediction, run.record, {file, "/record"});
  if (!faults.empty()) return refuse(faults);
  JudgedRun judged{file, "", degrees_text((*prepared)->degrees), batch_rows(*(*prepared)->planned.schedule->batch), {}};
  if (run.record.placement == RankPlacement::kVirtual) {
    const ComposedStep composed = compose_step(setup, prediction, run.record, kMeasuredConfidence);
    judged.comparison = compare_run(prediction, run.record, &composed);
  } else {
    judged.comparison = compare_run(prediction, run.record, nullptr);
  }
  return judged;
}

Expected<RunsAccuracy> judge_runs(const std::string& folder) {
  RunsAccuracy accuracy;
  accuracy.folder = folder;
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    if (entry->path().extension() == ".json") names.push_back(entry->path().filename().string());
  }
  if (failed && failed != std::errc::no_such_file_or_directory) {
    return tl::unexpected(Errors{{folder, "", failed.message(), "a folder of kept runs", ""}});
  }
  std::sort(names.begin(), names.end());
  Errors errors;
  std::vector<Comparison> counted;
  for (const std::string& name : names) {
    const std::string file = (fs::path(folder) / name).string();
    const Expected<KeptRun> run = read_kept_run(file);
    if (!run) {
      append(errors, run.error());
      continue;
    }
    JudgedRun judged{name, why_left_out(*run), "", 0, {}};
    if (judged.left_out.empty()) {
      auto outcome = judge_run(*run, name);
      if (outcome) {
        judged = std::move(*outcome);
        counted.push_back(judged.comparison);
      } else {
        judged.left_out = "this version does not make its schedule: " + outcome.error();
      }
    }
    accuracy.runs.push_back(std::move(judged));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  accuracy.orders = compare_orders(counted);
  return accuracy;
}

}  // namespace longhaul
