// The run of `longhaul calibrate`: the plan on a bench, row by row into files, with what was there left as it is.
//
// FILE.rows.csv gets a row as soon as it is measured, written whole; tables of their own (overlap, collectives) lie
// beside it. A run that ends early (interrupt, fault, full disk) leaves whole rows, and `resume` goes on where the
// device, its driver, the libraries and Longhaul are the same. Nothing here writes FILE itself.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "validate/gpu/calibrate/bench.h"
#include "validate/gpu/calibrate/measuring_loop.h"

namespace longhaul {

struct CalibrationOptions {
  std::string out;  // FILE
  bool resume = false, quick = false;
  std::vector<CallClass> classes;
  LoopLimits limits;
};

struct CalibrationProgress {
  std::size_t done = 0, of = 0;  // rows and tables, those of earlier runs included
  double predicted_left_seconds = 0;
  std::string what;  // describe() of the call that is measured now
};

struct CalibrationHooks {
  // Asked between two calls: stop here?
  std::function<bool()> interrupted = [] { return false; };
  std::function<void(const CalibrationProgress&)> progress = [](const CalibrationProgress&) {};
  // A line for people: a call that was left out, a clock that stayed low.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  // Seconds that a row will take.
  std::function<double(const CalibrationCall&)> predicted_seconds = [](const CalibrationCall&) { return 0.0; };
};

struct CalibrationOutcome {
  std::string rows_file;
  std::vector<std::string> table_files;
  std::size_t measured = 0, kept = 0, left_out = 0, throttled = 0;
  bool interrupted = false;
};

std::string rows_file_of(const std::string& out);  // FILE.rows.csv

// Errors: the rows file is there and `resume` is not set; it is of another device or version; it cannot be written.
// Throws LimitError, one line with the remedy, when the device fails (class, call, device, what failed, and that the
// rows before it are kept) or the disk is full.
Expected<CalibrationOutcome> run_calibration(const CalibrationOptions& options, Bench& bench,
                                             const CalibrationHooks& hooks);

}  // namespace longhaul
