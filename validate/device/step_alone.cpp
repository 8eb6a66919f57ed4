#include "validate/device/step_alone.h"

namespace longhaul {

StepOutcome step_alone(const DevicePlan& plan, Device& device, const ExecutorOptions& options, const StepWish& wish) {
  VirtualTransport transport;
  try {
    return DeviceExecutor(plan, {&device}, transport, options).run_step(wish);
  } catch (const DeviceFault& fault) {
    if (fault.abandoned()) device.abandon();
    throw;
  }
}

}  // namespace longhaul
