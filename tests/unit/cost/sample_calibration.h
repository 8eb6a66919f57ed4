// A calibration with round constants, for tests that evaluate the model by hand.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

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
  KernelCalibration plain;
  plain.timed_alone_seconds = 8e-6;
  plain.small_call_seconds = 5e-5;
  plain.small = {10, -0.25, 0.5, 0.1, 0.2};
  plain.large = {20, -0.125, 0.25, 0.02, 0.07};
  const auto add = [&](const std::string& name, const Terms& constants, std::vector<SizeKey> measured) {
    KernelCalibration& kernel = out.classes[name] = plain;
    kernel.constants = constants;
    kernel.measured = std::move(measured);
    set_range(kernel);
  };
  add("gemm", {16e-6, 1e-9, 1e-15, 2e-16}, {{512, 512, 512}, {8192, 8192, 8192}});
  const std::vector<SizeKey> lists = {{1, 128, 128, 1, 1, 64}, {100, 65536, 65536, 1 << 30, 64, 256}};
  // A microsecond a tile forward, three backward; offsets cost half as much again, sustained tiles a tenth more.
  add("attention/cudnn/forward/dense", {16e-6, 1e-6, 1e-6, 1.5e-6, 1e-7}, lists);
  add("attention/cudnn/backward/dense", {16e-6, 3e-6, 3e-6, 4.5e-6, 3e-7, 0, 1e-12, 2e-12}, lists);
  add("attention/cudnn/forward/ragged", {16e-6, 1e-6, 1e-6, 1e-6, 1e-7, 5e-7}, lists);
  add("attention/cudnn/backward/ragged", {16e-6, 3e-6, 3e-6, 3e-6, 3e-7, 5e-7, 1e-12, 2e-12}, lists);
  for (const char* name : {"elementwise", "copy-d2d"}) add(name, {16e-6, 2.5e-13}, {{4096}, {std::int64_t{1} << 30}});
  add("elementwise/swiglu", {16e-6, 2.5e-13, 1e-10, 1e-9}, {{4096}, {std::int64_t{1} << 30}});
  for (const char* name : {"copy-h2d", "copy-d2h"}) add(name, {16e-6, 2e-11}, {{4096}, {std::int64_t{1} << 30}});
  return out;
}

inline KernelModel sample_model(const DeviceSpec& device) {
  return KernelModel(device, std::make_shared<const Calibration>(sample_calibration()));
}

}  // namespace longhaul
