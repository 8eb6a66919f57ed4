// A bench that takes as long as the shipped model of the H200 says, with errors that no shape explains.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/estimate.h"
#include "tests/unit/calibrate/scripted_bench.h"
#include "validate/gpu/calibrate/budget.h"
#include "validate/gpu/calibrate/call_order.h"

namespace longhaul {

// Errors are spread evenly over +- 1.5 %.
class ModelBench : public ScriptedBench {
 public:
  explicit ModelBench(KernelModel model) : model_(std::move(model)) {}

  PreparedCall prepare(const CalibrationCall& call) override {
    PreparedCall scripted = ScriptedBench::prepare(call);  // its faults
    const double error = 0.985 + 0.03 * even_point(prepared.size(), 1)[0];
    const double ms = 1e3 * error * predicted_call_seconds(call, model_);
    return {implementation(call), std::make_unique<ScriptedStopwatch>(std::vector<Sample>{{ms, clock_mhz}})};
  }

 private:
  // As the CUDA bench names them.
  static std::string implementation(const CalibrationCall& call) {
    switch (call.call_class) {
      case CallClass::kGemm:
        return "cublaslt";
      case CallClass::kAttention:
        return "cudnn";
      case CallClass::kVarlen:
        return "cudnn-ragged";
      case CallClass::kDiffusion:
        return call.head_dim == 128 ? "longhaul-hopper" : "longhaul-portable";
      case CallClass::kElementwise:
        return call.kernel;
      default:
        return "cuda";
    }
  }
  KernelModel model_;
};

}  // namespace longhaul
