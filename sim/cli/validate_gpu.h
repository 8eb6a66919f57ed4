// What `longhaul validate` asks before it runs anything on a GPU.
#pragma once

#include <optional>
#include <string>

namespace longhaul {

// Why this build or machine runs nothing on GPUs, and how to get it, in one line; nullopt if it can.
std::optional<std::string> missing_for_gpu();

// "h200" of "NVIDIA H200": the shipped device of that name or alias; empty if none is.
std::string shipped_device_of(const std::string& hardware_name);

}  // namespace longhaul
