// GPU tests skip, with the reason, where no CUDA device answers.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>

namespace longhaul {

// Empty when a device is there.
inline std::string no_device_reason() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    return std::string("no CUDA device: ") + cudaGetErrorName(status) + ": " + cudaGetErrorString(status);
  }
  return count == 0 ? "no CUDA device: cudaGetDeviceCount is 0" : "";
}

template <class Base = testing::Test>
class GpuTest : public Base {
 protected:
  void SetUp() override {
    const std::string reason = no_device_reason();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

}  // namespace longhaul
