// A machine by script: every call takes as long as it says, some fail, some are refused.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/calibrate/scripted_stopwatch.h"
#include "validate/gpu/calibrate/bench.h"

namespace longhaul {

class ScriptedBench : public Bench {
 public:
  std::string device_name() const override { return "Scripted GPU"; }
  std::vector<std::string> identity() const override { return {"device: " + device, "driver: " + driver}; }
  std::vector<std::string> notes() const override { return {"date: 2026-11-29"}; }
  double default_clock_mhz() const override { return 2000; }

  PreparedCall prepare(const CalibrationCall& call) override {
    prepared.push_back(describe(call));
    const int number = static_cast<int>(prepared.size());
    if (number == fault_at) throw BenchFault("kernels/x.cu:7: cudaLaunchKernel(): cudaErrorLaunchFailure: boom");
    if (number == unsupported_at) throw UnsupportedCall("head dimension 256; supported are 64 and 128");
    return {call.call_class == CallClass::kElementwise ? call.kernel : "scripted",
            std::make_unique<ScriptedStopwatch>(std::vector<Sample>{{1, clock_mhz}})};
  }

  std::vector<CalibrationTable> tables(const std::vector<CallClass>& classes, bool) override {
    std::vector<CalibrationTable> result;
    for (const CallClass call_class : classes) {
      if (call_class != CallClass::kOverlap) continue;
      ResultFormat format{identity(), {}, {"compute", "ms"}, {"compute"}};
      result.push_back({call_class, ".overlap.csv", format, 20, [this](ResultFile& file) {
                          if (table_faults) throw BenchFault("validate/gpu/y.cpp:9: cudaMalloc(): out of memory");
                          if (!file.has({"gemm"})) file.append({"gemm", "1.5"});
                        }});
    }
    return result;
  }

  std::string device = "Scripted GPU, sm_90", driver = "1.0";
  int fault_at = -1, unsupported_at = -1;  // counted from 1
  bool table_faults = false;
  double clock_mhz = 1900;
  std::vector<std::string> prepared;
};

}  // namespace longhaul
