// Which shipped device a GPU is, by the name that CUDA gives it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace longhaul {

// The longest of `devices` ("h100", "a100-80gb") all of whose parts stand in the GPU's name ("NVIDIA A100-SXM4-80GB"),
// case ignored; nullopt if there is none.
std::optional<std::string> device_of_gpu(const std::string& gpu_name, const std::vector<std::string>& devices);

}  // namespace longhaul
