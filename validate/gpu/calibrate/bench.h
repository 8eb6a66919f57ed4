// What `longhaul calibrate` needs of a machine: the border between what decides (plan, loop, rows, resume; this folder,
// no CUDA) and what runs. The CUDA bench is validate/gpu/cuda_bench.h; tests have a scripted one.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "validate/gpu/calibrate/calibration_call.h"
#include "validate/gpu/calibrate/stopwatch.h"
#include "validate/gpu/result_file.h"

namespace longhaul {

// A GPU or one of its libraries failed: the text names the call, the place and what the library said of it. Nothing
// that runs afterwards in this process can be trusted.
class BenchFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// This machine cannot run this call (a head dimension that a kernel lacks): it is left out, and said.
class UnsupportedCall : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct PreparedCall {
  std::string implementation;  // "cublaslt", "cudnn-ragged", "longhaul-hopper", ...
  std::unique_ptr<Stopwatch> stopwatch;
};

// A table of its own beside the rows: overlap, collectives. Measures what its file does not have yet.
struct CalibrationTable {
  CallClass call_class = CallClass::kOverlap;
  std::string suffix;  // of the file: FILE + suffix
  ResultFormat format;
  double predicted_seconds = 0;
  std::function<void(ResultFile&)> measure;
};

class Bench {
 public:
  virtual ~Bench() = default;

  virtual std::string device_name() const = 0;  // "NVIDIA H200"
  // "device: ...", "driver: ...", versions of the libraries and of Longhaul: a file is resumed only where all agree.
  virtual std::vector<std::string> identity() const = 0;
  // Written once: date, clocks, power, temperature.
  virtual std::vector<std::string> notes() const = 0;
  virtual double default_clock_mhz() const = 0;  // 0: unknown

  // Operands, plans and scratch of `call`, warmed up. Throws UnsupportedCall, BenchFault. One call at a time: the one
  // before is given back first.
  virtual PreparedCall prepare(const CalibrationCall& call) = 0;
  // The tables of `classes`, in order of measuring.
  virtual std::vector<CalibrationTable> tables(const std::vector<CallClass>& classes, bool quick) = 0;
};

}  // namespace longhaul
