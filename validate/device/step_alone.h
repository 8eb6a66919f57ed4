// One step of a schedule of one rank, for its numbers: what a distributed step is compared with.
#pragma once

#include "validate/device/device_executor.h"

namespace longhaul {

// As DeviceExecutor::run_step. After a hang `device` is abandoned, so that its end waits for nothing.
StepOutcome step_alone(const DevicePlan& plan, Device& device, const ExecutorOptions& options, const StepWish& wish);

}  // namespace longhaul
