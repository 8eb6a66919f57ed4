// A calibration with round constants, for tests that evaluate the model by hand.
#pragma once

#include <memory>

#include "sim/cost/calibration.h"
#include "sim/cost/estimate.h"

namespace longhaul {

inline DeviceSpec sample_device(const std::string& name) {
  DeviceSpec device;
  device.name = name;
  device.memory = Bytes{std::int64_t{100} << 30};
  device.bf16_dense = FlopsPerSecond{1000e12};
  device.memory_bandwidth = BytesPerSecond{4e12};
  device.multiprocessors = 100;
  device.host_link = BytesPerSecond{50e9};
  return device;
}

inline Calibration sample_calibration() {
  Calibration out;
  out.name = "sample";
  out.date = "2020-01-02";
  out.machine = "made up";
  out.peak_flops_per_second = 1000e12;
  out.memory_bytes_per_second = 4e12;
  out.host_link_bytes_per_second = 50e9;
  out.multiprocessors = 100;
  out.launch_seconds = 5e-6;
  out.overlap.gemm = {1.25, 0.5, true};
  out.overlap.attention = {1.125, 1, false};
  out.overlap.compute_beside_host_copy = 1.125;
  out.overlap.memory_kernel_beside_compute = 2;
  out.overlap.memory_bytes_per_transferred_byte = 2;
  out.overlap.transfer_beside_gemm = 1.25;
  out.overlap.transfer_beside_attention = 1.125;
  out.overlap.transfer_beside_memory_kernel = 1.5;
  out.overlap_residuals = {12, -0.375, 0.5, 0.1, 0.4};
  for (KernelCalibration& kernel : out.kernels) {
    kernel.timed_alone_seconds = 8e-6;
    kernel.small_call_seconds = 5e-5;
    kernel.small = {10, -0.25, 0.5, 0.1, 0.2};
    kernel.large = {20, -0.125, 0.25, 0.02, 0.07};
  }
  const SizeKey one_gemm = {512, 512, 512};
  const SizeKey other_gemm = {8192, 8192, 8192};
  out.kernel(KernelKind::kGemm).constants = {16e-6, 1e-9, 1e-15, 2e-16};
  out.kernel(KernelKind::kGemm).measured = {one_gemm, other_gemm};
  out.kernel(KernelKind::kAttentionForwardDense).constants = {16e-6, 1e-10};
  out.kernel(KernelKind::kAttentionBackwardDense).constants = {16e-6, 3e-10};
  out.kernel(KernelKind::kAttentionForwardRagged).constants = {16e-6, 1e-10, 1e-6, 5e-7};
  out.kernel(KernelKind::kAttentionBackwardRagged).constants = {16e-6, 3e-10, 1e-5, 2e-6};
  for (int i = 1; i <= 4; ++i) {
    out.kernel(static_cast<KernelKind>(i)).measured = {{1, 128, 128, 1, 1, 64}, {100, 65536, 65536, 1 << 30, 64, 256}};
  }
  for (int i = 5; i < kKernelKindCount; ++i) {
    out.kernel(static_cast<KernelKind>(i)).constants = {16e-6, 2.5e-13};
    out.kernel(static_cast<KernelKind>(i)).measured = {{4096}, {std::int64_t{1} << 30}};
  }
  out.kernel(KernelKind::kCopyHostToDevice).constants = {16e-6, 2e-11};
  out.kernel(KernelKind::kCopyDeviceToHost).constants = {16e-6, 2e-11};
  for (KernelCalibration& kernel : out.kernels) {
    kernel.lowest = kernel.measured.front();
    kernel.highest = kernel.measured.back();
  }
  return out;
}

inline KernelModel sample_model(const DeviceSpec& device) {
  return KernelModel(device, std::make_shared<const Calibration>(sample_calibration()));
}

}  // namespace longhaul
