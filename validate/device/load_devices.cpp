#include "validate/device/gpu_devices.h"
#include "validate/gpu/calibrate/module_file.h"

namespace longhaul {
namespace {

const ModuleFile& device_module() {
  static const ModuleFile module{"longhaul-device.so", "validate/device", LONGHAUL_DEVICE_MISSING,
                                 "this build runs nothing on GPUs",
                                 "CUDA with cuBLASLt; cuDNN 9 and NCCL for all of it, docs/development.md"};
  return module;
}

}  // namespace

const GpuDevices& gpu_devices() {
  static const GpuDevices* const devices = [] {
    static const std::shared_ptr<void> library = open_module(device_module());
    return reinterpret_cast<FindGpuDevices>(module_entry(device_module(), library.get(), "longhaul_gpu_devices"))();
  }();
  return *devices;
}

}  // namespace longhaul
