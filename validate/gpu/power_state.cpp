#include "validate/gpu/power_state.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

#include "kernels/common/check.h"

namespace longhaul {
namespace {

// The few calls of NVML that are asked, by the interface that the driver keeps stable (nvml.h is not part of every
// toolkit): 0 is success; a device is an opaque pointer; clock types 1: multiprocessors, 2: memory; sensor 0: GPU.
using Device = void*;
constexpr int kSuccess = 0, kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0;

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {}

  explicit operator bool() const { return library_ != nullptr; }

  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_.get(), name));
    return function != nullptr && function(arguments...) == kSuccess;
  }

 private:
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  std::unique_ptr<void, Close> library_;
};

std::vector<std::string> lines_of(const Nvml& nvml, Device gpu) {
  std::vector<std::string> lines;
  unsigned value = 0;
  if (nvml.call("nvmlDeviceGetEnforcedPowerLimit", gpu, &value)) {
    lines.push_back(fmt::format("power limit: {} W", (value + 500) / 1000));
  }
  if (nvml.call("nvmlDeviceGetPowerUsage", gpu, &value)) {
    lines.push_back(fmt::format("power at the start: {} W", (value + 500) / 1000));
  }
  if (nvml.call("nvmlDeviceGetTemperature", gpu, kGpuSensor, &value)) {
    lines.push_back(fmt::format("temperature at the start: {} C", value));
  }
  for (const auto& [clock, name] : {std::pair{kSmClock, "multiprocessors"}, std::pair{kMemoryClock, "memory"}}) {
    unsigned now = 0;
    if (nvml.call("nvmlDeviceGetClockInfo", gpu, clock, &now) &&
        nvml.call("nvmlDeviceGetMaxClockInfo", gpu, clock, &value)) {
      lines.push_back(fmt::format("clock of {}: {} MHz at the start, {} MHz at most", name, now, value));
    }
  }
  return lines;
}

PowerState state_of(const Nvml& nvml, Device gpu) {
  PowerState state;
  unsigned value = 0;
  if (nvml.call("nvmlDeviceGetClockInfo", gpu, kSmClock, &value)) state.sm_clock_mhz = static_cast<int>(value);
  if (nvml.call("nvmlDeviceGetTemperature", gpu, kGpuSensor, &value)) state.temperature_c = static_cast<int>(value);
  if (nvml.call("nvmlDeviceGetPowerUsage", gpu, &value)) state.power_w = static_cast<int>((value + 500) / 1000);
  return state;
}

// Asks of the GPU that CUDA calls `device`; nothing where the driver does not know it.
template <class Ask>
void ask_gpu(const Nvml& nvml, int device, Ask&& ask) {
  char bus[32] = "";
  LH_CUDA_CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), device));
  Device gpu = nullptr;
  if (nvml.call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(bus), &gpu)) ask(gpu);
}

}  // namespace

PowerState power_state(int device) {
  PowerState state;
  const Nvml nvml;
  if (!nvml || !nvml.call("nvmlInit_v2")) return state;
  ask_gpu(nvml, device, [&](Device gpu) { state = state_of(nvml, gpu); });
  nvml.call("nvmlShutdown");
  return state;
}

std::vector<std::string> power_lines(int device) {
  const Nvml nvml;
  if (!nvml) return {"power: not known, there is no libnvidia-ml.so.1"};
  if (!nvml.call("nvmlInit_v2")) return {"power: not known, libnvidia-ml.so.1 does not start"};
  std::vector<std::string> lines;
  ask_gpu(nvml, device, [&](Device gpu) { lines = lines_of(nvml, gpu); });
  nvml.call("nvmlShutdown");
  if (lines.empty()) lines.emplace_back("power: not known, libnvidia-ml.so.1 does not tell");
  return lines;
}

}  // namespace longhaul
