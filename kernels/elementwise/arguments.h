// What the memory-bound kernels say of arguments that they do not take.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace longhaul {

// Throws std::invalid_argument: "KERNEL: WHAT is VALUE; supported: SUPPORTED".
inline void require(bool holds, const char* kernel, const char* what, std::int64_t value, const char* supported) {
  if (holds) return;
  throw std::invalid_argument(std::string(kernel) + ": " + what + " is " + std::to_string(value) +
                              "; supported: " + supported);
}

// Rows of a tensor are whole groups of 8 elements and the tensor is 16-byte aligned.
inline void require_groups(const void* pointer, std::int64_t length, const char* kernel, const char* what) {
  require(length >= 0 && length % 8 == 0, kernel, what, length, "multiples of 8");
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(pointer) % 16);
  require(address == 0, kernel, "the address of a tensor modulo 16", address, "16-byte aligned tensors");
}

}  // namespace longhaul
