// longhaul calibrate: measure this machine's GPU, write a calibration.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>

#include "sim/cli/calibrate_plan.h"
#include "sim/cli/command.h"
#include "sim/cli/progress.h"
#include "sim/cluster/device.h"
#include "sim/core/data_files.h"
#include "sim/cost/calibration.h"
#include "sim/cost/estimate.h"
#include "validate/gpu/calibrate/budget.h"
#include "validate/gpu/calibrate/device_of_gpu.h"
#include "validate/gpu/calibrate/fit_rows.h"
#include "validate/gpu/calibrate/load_bench.h"
#include "validate/gpu/calibrate/plan.h"
#include "validate/gpu/calibrate/run_calibration.h"
#include "validate/gpu/calibrate/time_left.h"

namespace longhaul {
namespace {

constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells have it

struct CalibrateArguments {
  GlobalOptions global;
  std::string out;
  std::vector<std::string> only;
  std::string device;
  int gpus = 0;
  bool resume = false, quick = false, plan = false;
};

volatile std::sig_atomic_t interrupt_asked = 0;

void ask_interrupt(int) { interrupt_asked = 1; }

// The first interrupt ends the run after the call that is measured now; a second one ends the process.
class InterruptGuard {
 public:
  InterruptGuard() {
    struct sigaction action = {};
    action.sa_handler = ask_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptGuard() { sigaction(SIGINT, &before_, nullptr); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_ = {};
};

std::string minutes(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

Errors faults_of_out(const CalibrateArguments& options) {
  namespace fs = std::filesystem;
  if (options.plan && options.out.empty()) return {};
  if (options.out.empty()) return {{"<command line>", "--out", "is not given", "the calibration to write", ""}};
  std::error_code error;
  const fs::path folder = fs::path(options.out).parent_path();
  if (fs::is_directory(options.out, error)) return {{options.out, "", "is a folder", "a file to write", ""}};
  if (folder.empty() || fs::is_directory(folder, error)) return {};
  return {{options.out, "", fmt::format("lies in {}, which is no folder", folder.string()), "a file to write", ""}};
}

// The device whose data sheet the calibration takes: --device, or what the GPU's name says.
Expected<DeviceSpec> device_spec(const CalibrateArguments& options, const std::string& gpu_name) {
  if (!options.device.empty()) return read_device(options.device, data_directory());
  const std::vector<std::string> shipped = shipped_devices(data_directory());
  const std::optional<std::string> name = device_of_gpu(gpu_name, shipped);
  if (!name) {
    return tl::unexpected(
        Errors{{"<command line>", "--device", fmt::format("is not given, and {} is none that ships", gpu_name),
                fmt::format("a device file, or one of {}", fmt::join(shipped, ", ")), ""}});
  }
  return read_device(*name, data_directory());
}

int interrupted(const CalibrationOutcome& outcome) {
  fmt::print(stderr, "longhaul: interrupted; {} rows are in {}: go on with --resume\n", outcome.measured + outcome.kept,
             outcome.rows_file);
  return kExitInterrupted;
}

class Measuring {
 public:
  Measuring(const CalibrateArguments& options, const KernelModel& model)
      : options_(options), model_(model), progress_(options.global.quiet), start_(Clock::now()) {}

  Expected<CalibrationOutcome> run(Bench& bench, const CalibrationOptions& calibration) {
    CalibrationHooks hooks;
    hooks.interrupted = [] { return interrupt_asked != 0; };
    hooks.say = [&](const std::string& line) { said_.push_back(line); };
    hooks.predicted_seconds = [&](const CalibrationCall& call) {
      return predicted_row_seconds(call, predicted_call_seconds(call, model_), calibration.limits);
    };
    hooks.progress = [&](const CalibrationProgress& progress) { show(progress); };
    const InterruptGuard guard;
    Expected<CalibrationOutcome> outcome = run_calibration(calibration, bench, hooks);
    progress_.clear();
    for (const std::string& line : said_) say(options_.global, line);
    return outcome;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void show(const CalibrationProgress& progress) {
    if (predicted_ < progress.predicted_left_seconds) predicted_ = progress.predicted_left_seconds;
    const double passed = std::chrono::duration<double>(Clock::now() - start_).count();
    const double left = time_left(predicted_, progress.predicted_left_seconds, passed);
    progress_.show(progress.done, progress.of, fmt::format("{} left: {}", minutes(left), progress.what));
  }

  const CalibrateArguments& options_;
  const KernelModel& model_;
  Progress progress_;
  Clock::time_point start_;
  double predicted_ = 0;
  std::vector<std::string> said_;
};

int print_plan(const CalibrateArguments& options, const std::vector<CallClass>& classes) {
  const Expected<DeviceSpec> device = read_device(options.device.empty() ? "h200" : options.device, data_directory());
  if (!device) return wrong_input(device.error());
  const Expected<KernelModel> model = load_kernel_model(*device, data_directory());
  if (!model) return wrong_input(model.error());
  print(plan_text(calibration_plan(classes, options.quick), *model, options.global.format()));
  return kExitDone;
}

std::int64_t most_host_bytes(const std::vector<CalibrationCall>& plan) {
  std::int64_t bytes = 0;
  for (const CalibrationCall& call : plan) {
    if (call.call_class == CallClass::kCopy && call.pass != "d2d") bytes = std::max(bytes, call.bytes);
  }
  return bytes;
}

// The calibration from all rows of the file; nothing is written where they cannot be fitted.
int finish(const CalibrateArguments& options, const DeviceSpec& device, const CalibrationOutcome& outcome) {
  const std::optional<std::string> text = read_text_file(outcome.rows_file);
  if (!text) return wrong_input({{outcome.rows_file, "", "cannot be read", "the rows just measured", ""}});
  const Expected<Calibration> base = base_calibration(device, data_directory());
  if (!base) return wrong_input(base.error());
  const Expected<KernelFit> fit = fit_calibration_rows(*text, outcome.rows_file, device, *base);
  if (!fit) return wrong_input(fit.error());
  const std::string rows = std::filesystem::path(outcome.rows_file).filename().string();
  write_file(options.out, "--out", write_calibration(fit->calibration, {rows}));
  print(errors_text(class_errors(*fit), options.global.format()));
  say(options.global, fmt::format("{}: calibration of {} from {} rows", options.out, device.name, fit->rows.size()));
  return kExitDone;
}

int calibrate(const CalibrateArguments& options) {
  Errors errors = faults_of_out(options);
  const Expected<std::vector<CallClass>> classes = parse_classes(options.only, "--only");
  if (!classes) append(errors, classes.error());
  if (!errors.empty()) return wrong_input(errors);
  if (options.plan) return print_plan(options, *classes);

  BenchOptions bench_options;
  bench_options.gpus = options.gpus;
  const std::vector<CalibrationCall> plan = calibration_plan(*classes, options.quick);
  for (const CalibrationCall& call : plan) {
    bench_options.operand_bytes = std::max(bench_options.operand_bytes, operand_bytes(call));
  }
  bench_options.host_bytes = most_host_bytes(plan);
  bench_options.end_process = [](const std::string& line) { end_now(cannot(line)); };
  LoadedBench bench = load_bench(bench_options);
  const Expected<DeviceSpec> device = device_spec(options, (*bench).device_name());
  if (!device) return wrong_input(device.error());
  const Expected<KernelModel> model = load_kernel_model(*device, data_directory());
  if (!model) return wrong_input(model.error());

  CalibrationOptions calibration;
  calibration.out = options.out;
  calibration.resume = options.resume;
  calibration.quick = options.quick;
  calibration.classes = *classes;
  const Expected<CalibrationOutcome> outcome = Measuring(options, *model).run(*bench, calibration);
  if (!outcome) return wrong_input(outcome.error());
  if (outcome->interrupted) return interrupted(*outcome);
  if (outcome->left_out > 0) say(options.global, fmt::format("{} calls were left out", outcome->left_out));
  return plan.empty() ? kExitDone : finish(options, *device, *outcome);
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  auto options = std::make_shared<CalibrateArguments>();
  CLI::App* command = app.add_subcommand("calibrate", "Measure this machine's GPU, write a calibration");
  command->add_option("--out", options->out, "Calibration to write; rows go to FILE.rows.csv as they are measured");
  command
      ->add_option("--only", options->only, fmt::format("Classes, comma-separated: {}", fmt::join(class_names(), ", ")))
      ->delimiter(',');
  command->add_option("--gpus", options->gpus, "GPUs for overlap and collectives; all of the host if not given")
      ->check(CLI::Range(1, 64));
  command->add_option("--device", options->device,
                      "Shipped device or file whose data sheet counts; else by the GPU's name");
  command->add_flag("--resume", options->resume, "Go on with the rows of a run that ended early");
  command->add_flag("--quick", options->quick,
                    "A few rows of each class: a check of the machine, no calibration to keep");
  command->add_flag("--plan", options->plan, "Print what would be measured and how long it takes; needs no GPU");
  add_global_options(*command, options->global, "longhaul calibrate --out my-h200.json");
  command->callback([&action, options] { action = [options] { return calibrate(*options); }; });
}

}  // namespace longhaul
