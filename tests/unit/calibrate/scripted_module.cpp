// A longhaul-gpu.so without a GPU: what `longhaul calibrate` loads in command_test.cpp. The environment variable
// LONGHAUL_SCRIPT says what happens: nothing (it measures), "no-device", "fault" and "interrupt" (at the fifth call),
// "other-device".
#include <csignal>
#include <cstdlib>
#include <string>

#include "sim/cluster/device.h"
#include "sim/core/data_files.h"
#include "tests/unit/calibrate/model_bench.h"
#include "validate/gpu/calibrate/load_bench.h"

namespace longhaul {
namespace {

constexpr int kFifth = 5;

class CommandBench : public ModelBench {
 public:
  explicit CommandBench(std::string script)
      : ModelBench(*load_kernel_model(*read_device("h200", data_directory()), data_directory())),
        script_(std::move(script)) {
    if (script_ == "fault") fault_at = kFifth;
    if (script_ == "other-device") device = "Other GPU, sm_80";
  }
  std::string device_name() const override { return "GPU 0 (H200)"; }
  PreparedCall prepare(const CalibrationCall& call) override {
    if (script_ == "interrupt" && prepared.size() + 1 == kFifth) std::raise(SIGINT);
    return ModelBench::prepare(call);
  }

 private:
  std::string script_;
};

}  // namespace
}  // namespace longhaul

extern "C" longhaul::Bench* longhaul_make_bench(const longhaul::BenchOptions&) {
  const char* const script = std::getenv("LONGHAUL_SCRIPT");
  const std::string name = script == nullptr ? "" : script;
  if (name == "no-device") throw longhaul::LimitError("no CUDA device: scripted; run where a GPU is");
  return new longhaul::CommandBench(name);
}
