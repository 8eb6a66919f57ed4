#include "sim/cli/validate_numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "validate/cpu/reference.h"
#include "validate/device/transport.h"

namespace longhaul {
namespace {

// A double-precision step beyond this takes the CPU too long; the undistributed step on the device is the reference.
constexpr double kReferenceFlops = 1e12;
constexpr std::int64_t kSampledRows = 256;
constexpr std::uint64_t kSampleSeed = 1;
constexpr char kUndistributed[] = "undistributed";

// The study with the entry replaced by one rank that holds every sequence.
Json undistributed_study(const Json& study) {
  Json json = study;
  Json& one = json.contains("cases") ? json["cases"][0] : json;
  one["gpus"] = 1;
  one["layout"] = {{"dp", 1}};
  one["strategies"] = Json::array({{{"name", "data-parallel"}, {"label", kUndistributed}}});
  one["baseline"] = kUndistributed;
  one["training"]["micro_batch_sequences"] = 1;
  return json;
}

int threads() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

struct UndistributedStep {
  Prepared prepared;  // owns the schedule
  StepOutcome outcome;
  std::string failed;  // why it did not run; empty: it did
};

// Null if the study has no undistributed form that runs.
std::unique_ptr<UndistributedStep> run_undistributed(const PreparedRun& prepared, const MakeDevice& make_device,
                                                     const ExecutorOptions& options, bool rows) {
  Json study = prepared.study_json;
  if (study.contains("cases") && study["cases"].size() > 1) {
    Json only = Json::array();
    for (const Json& one : study["cases"]) {
      if (one["name"] == prepared.study_case->name) only.push_back(one);
    }
    study["cases"] = std::move(only);
  }
  Expected<Prepared> one =
      prepare_run(undistributed_study(study), prepared.study.file, kUndistributed, prepared.study_case->name);
  if (!one) return nullptr;
  auto step = std::make_unique<UndistributedStep>();
  step->prepared = std::move(*one);
  const Schedule& schedule = *step->prepared->planned.schedule;
  try {
    const std::unique_ptr<Device> device = make_device();
    const DevicePlan plan(schedule);
    VirtualTransport transport;
    DeviceExecutor executor(plan, {device.get()}, transport, options);
    step->outcome = executor.run_step(rows ? row_wish(schedule) : numerics_wish(schedule));
  } catch (const DeviceFault& fault) {
    if (fault.kind() != FaultKind::kMemory) throw;
    step->failed = fault.why();
  }
  return step;
}

}  // namespace

NumericsCheck::NumericsCheck(const PreparedRun& prepared, const MakeDevice& make_device, const ExecutorOptions& options)
    : schedule_(*prepared.planned.schedule) {
  const Training& training = prepared.study_case->training;
  if (training.scope != Scope::kStep || !training.backward) {
    left_out_ = "references are whole training steps; set training.scope to \"step\" with both passes";
    return;
  }
  const Batch& batch = *schedule_.batch;
  const bool whole = reference_flops(schedule_.model, batch) <= kReferenceFlops;
  wish_ = whole ? numerics_wish(schedule_) : row_wish(schedule_);
  const std::unique_ptr<UndistributedStep> step = run_undistributed(prepared, make_device, options, !whole);
  const bool ran = step != nullptr && step->failed.empty();
  if (whole) {
    const ParameterValues parameters = make_parameters(schedule_.model, options.parameter_seed);
    reference_ = reference_of(schedule_.model, reference_step(schedule_.model, batch, parameters));
    if (ran) undistributed_ = relative_errors(*step->prepared->planned.schedule, step->outcome, *reference_);
    return;
  }
  if (ran) {
    const Schedule& undistributed = *step->prepared->planned.schedule;
    reference_ = reference_of(undistributed, step->outcome);
    rows_ = sample_rows(batch, kSampledRows, kSampleSeed);
    undistributed_rows_ = sampled_errors(undistributed, step->outcome, rows_, threads());
    return;
  }
  left_out_ =
      fmt::format("the step is too large for double precision on the CPU ({:.0e} FLOP), and {}", kReferenceFlops,
                  step == nullptr ? "its objective has no undistributed strategy"
                                  : "the undistributed step did not run: " + step->failed);
}

void NumericsCheck::judge(const StepOutcome& outcome, RunRecord& record) const {
  if (!reference_) {
    record.exclusions.push_back({-1, -1, "numerics", left_out_});
    return;
  }
  record.numerics = longhaul::judge(relative_errors(schedule_, outcome, *reference_), undistributed_, reference_->name);
  if (rows_.empty()) return;
  const std::vector<NumericsResult> rows =
      judge_rows(sampled_errors(schedule_, outcome, rows_, threads()), undistributed_rows_);
  record.numerics.insert(record.numerics.end(), rows.begin(), rows.end());
}

}  // namespace longhaul
