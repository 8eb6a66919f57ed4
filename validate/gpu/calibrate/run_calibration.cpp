#include "validate/gpu/calibrate/run_calibration.h"

#include <fmt/format.h>

#include <utility>

#include "validate/gpu/calibrate/calibration_rows.h"
#include "validate/gpu/calibrate/plan.h"

namespace longhaul {
namespace {

class Run {
 public:
  Run(const CalibrationOptions& options, Bench& bench, const CalibrationHooks& hooks)
      : options_(options), bench_(bench), hooks_(hooks), limits_(options.limits) {
    limits_.default_clock_mhz = bench.default_clock_mhz();
  }

  Expected<CalibrationOutcome> run();

 private:
  void rows(ResultFile& file);
  void row(const CalibrationCall& call, ResultFile& file);
  Expected<void> tables();
  void count(const std::vector<CalibrationCall>& plan, const ResultFile& file);
  void show(const std::string& what) { hooks_.progress({done_, of_, left_seconds_, what}); }
  bool stopped() {
    outcome_.interrupted = outcome_.interrupted || hooks_.interrupted();
    return outcome_.interrupted;
  }
  [[noreturn]] void failed(CallClass call_class, const std::string& what, const BenchFault& fault) const;

  const CalibrationOptions& options_;
  Bench& bench_;
  const CalibrationHooks& hooks_;
  LoopLimits limits_;
  CalibrationOutcome outcome_;
  std::vector<CalibrationTable> tables_;
  std::vector<CalibrationCall> todo_;
  std::size_t done_ = 0, of_ = 0;
  double left_seconds_ = 0;
};

void Run::failed(CallClass call_class, const std::string& what, const BenchFault& fault) const {
  throw LimitError(
      fmt::format("{} failed in class {}, call {}: {}; the rows measured before it are in {}: run again with --resume",
                  bench_.device_name(), class_name(call_class), what, fault.what(), outcome_.rows_file));
}

void Run::count(const std::vector<CalibrationCall>& plan, const ResultFile& file) {
  of_ = plan.size() + tables_.size();
  for (const CalibrationCall& call : plan) {
    if (file.has(call_fields(call))) {
      ++done_;
      ++outcome_.kept;
      continue;
    }
    left_seconds_ += hooks_.predicted_seconds(call);
    todo_.push_back(call);
  }
  for (const CalibrationTable& table : tables_) left_seconds_ += table.predicted_seconds;
}

void Run::row(const CalibrationCall& call, ResultFile& file) {
  try {
    const PreparedCall prepared = bench_.prepare(call);
    const Measurement measured = measure(*prepared.stopwatch, limits_);
    file.append(calibration_row(call, prepared.implementation, measured));
    ++outcome_.measured;
    if (measured.stop == StopReason::kThrottled) {
      ++outcome_.throttled;
      hooks_.say(fmt::format("{}: the clock stayed at {:.0f} of {:.0f} MHz; the row is marked", describe(call),
                             measured.clock_mhz, limits_.default_clock_mhz));
    }
  } catch (const UnsupportedCall& why) {
    ++outcome_.left_out;
    hooks_.say(fmt::format("{}: left out: {}", describe(call), why.what()));
  } catch (const BenchFault& fault) {
    failed(call.call_class, describe(call), fault);
  }
}

void Run::rows(ResultFile& file) {
  for (const CalibrationCall& call : todo_) {
    if (stopped()) return;
    show(describe(call));
    row(call, file);
    ++done_;
    left_seconds_ -= hooks_.predicted_seconds(call);
  }
}

Expected<void> Run::tables() {
  for (const CalibrationTable& table : tables_) {
    if (stopped()) return {};
    show(std::string(class_name(table.call_class)));
    const std::string name = options_.out + table.suffix;
    Expected<ResultFile> file = ResultFile::open(name, table.format, options_.resume);
    if (!file) return tl::unexpected(file.error());
    try {
      table.measure(*file);
    } catch (const BenchFault& fault) {
      failed(table.call_class, std::string(class_name(table.call_class)), fault);
    }
    outcome_.table_files.push_back(name);
    ++done_;
    left_seconds_ -= table.predicted_seconds;
  }
  return {};
}

Expected<CalibrationOutcome> Run::run() {
  outcome_.rows_file = rows_file_of(options_.out);
  const std::vector<CalibrationCall> plan = calibration_plan(options_.classes, options_.quick);
  tables_ = bench_.tables(options_.classes, options_.quick);
  if (!plan.empty()) {
    Expected<ResultFile> file =
        ResultFile::open(outcome_.rows_file, calibration_format(bench_, limits_), options_.resume);
    if (!file) return tl::unexpected(file.error());
    count(plan, *file);
    rows(*file);
  } else {
    of_ = tables_.size();
  }
  const Expected<void> measured = tables();
  if (!measured) return tl::unexpected(measured.error());
  show("");
  return outcome_;
}

}  // namespace

std::string rows_file_of(const std::string& out) { return out + ".rows.csv"; }

Expected<CalibrationOutcome> run_calibration(const CalibrationOptions& options, Bench& bench,
                                             const CalibrationHooks& hooks) {
  return Run(options, bench, hooks).run();
}

}  // namespace longhaul
