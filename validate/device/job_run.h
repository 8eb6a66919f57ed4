// One run of a planned schedule by all processes of a job: process 0 leads, compares the numbers and has the record.
//
// After the numeric step every process gives process 0 its tensors and waits until it has compared them; after the
// times it gives its record. A process that a fault ends says so at the next of these two; the others come there when
// their watchdogs (ExecutorOptions::timeout) end what waits for it.
#pragma once

#include <functional>

#include "validate/device/device_executor.h"
#include "validate/device/process_job.h"

namespace longhaul {

// As run_on_devices, on process 0: `on_step` gets the tensors of all ranks, the record is of all ranks. A failure's
// message names its process; a failure that caused others' hangs goes before those.
RunRecord lead_run(ProcessJob& job, const DevicePlan& plan, const std::vector<Device*>& devices, Transport& transport,
                   const ExecutorOptions& options, const StepWish& wish,
                   const std::function<void(StepOutcome, RunRecord&)>& on_step);

// The same on every other process; true if a fault ended the run here after which nothing may be waited for.
bool follow_run(ProcessJob& job, const DevicePlan& plan, const std::vector<Device*>& devices, Transport& transport,
                const ExecutorOptions& options, const StepWish& wish);

}  // namespace longhaul
