// What the machine is, for the head of every measured file.
#pragma once

#include <string>
#include <vector>

namespace longhaul {

// GPUs that CUDA sees. Throws LimitError, with CUDA's words, where it sees none.
int visible_gpus();

// "H200": the device's name without the vendor.
std::string gpu_name(int device);

// "device: 2 x NVIDIA H200, 132 multiprocessors, 150109880320 bytes, ...", "driver: ...", "NCCL: ...", each NCCL_*
// variable of the environment but those of its log. GPUs 0 .. gpus - 1 must be of one kind (LimitError).
std::vector<std::string> machine_lines(int gpus);

// "2026-11-29", UTC.
std::string today();

}  // namespace longhaul
