// The GPUs of this machine as devices of the executor; in a build without them, what is missing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "validate/device/device.h"
#include "validate/device/transport.h"

namespace longhaul {

// Why this build or machine runs nothing on GPUs, and how to get it, in one line; nullopt if it can.
std::optional<std::string> missing_for_gpu();

// GPUs that can be used; 0 without any.
int visible_gpu_count();

// Whether ranks on several GPUs can be joined: NCCL was built in.
bool can_join_gpus();

std::unique_ptr<Device> make_gpu(int index);

// GPUs 0 .. ranks - 1, one a rank, joined by NCCL. Throws DeviceFault. Needs can_join_gpus().
struct GpuTeam {
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Transport> transport;  // goes before the devices
};
GpuTeam make_gpu_team(const Schedule& schedule);

// "h200" of "NVIDIA H200": the shipped device of that name or alias; empty if none is.
std::string shipped_device_of(const std::string& hardware_name);

}  // namespace longhaul
