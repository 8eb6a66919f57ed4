#include "validate/gpu/machine.h"

#include <cuda_runtime_api.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string_view>

#include "kernels/common/check.h"
#include "sim/core/error.h"
#include "validate/gpu/communicator.h"

namespace longhaul {
namespace {

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  LH_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties;
}

std::string device_text(const cudaDeviceProp& properties) {
  return fmt::format("{}, sm_{}{}, {} multiprocessors, {} bytes of memory, {} bytes of L2", properties.name,
                     properties.major, properties.minor, properties.multiProcessorCount, properties.totalGlobalMem,
                     properties.l2CacheSize);
}

// "580.159.04" of the kernel module; empty where the driver does not say.
std::string driver_release() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string word, first_line;
  std::getline(in, first_line);
  std::istringstream words(first_line);
  while (words >> word) {
    if (!word.empty() && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  }
  return "";
}

std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::vector<std::string> nccl_settings() {
  std::vector<std::string> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    // NCCL_VERSION is what container images say of their packages, no setting.
    const bool other = text.starts_with("NCCL_DEBUG") || text.starts_with("NCCL_VERSION");
    if (text.starts_with("NCCL_") && !other) settings.emplace_back(text);
  }
  std::sort(settings.begin(), settings.end());
  return settings;
}

}  // namespace

int visible_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    throw LimitError(fmt::format("no CUDA device: {}: {}; run where a GPU and its driver are", cudaGetErrorName(status),
                                 cudaGetErrorString(status)));
  }
  if (count == 0) throw LimitError("no CUDA device: cudaGetDeviceCount is 0; run where a GPU is");
  return count;
}

std::string gpu_name(int device) {
  std::string name = properties_of(device).name;
  constexpr std::string_view kVendor = "NVIDIA ";
  return name.starts_with(kVendor) ? name.substr(kVendor.size()) : name;
}

std::vector<std::string> machine_lines(int gpus) {
  const std::string device = device_text(properties_of(0));
  for (int other = 1; other < gpus; ++other) {
    const std::string text = device_text(properties_of(other));
    if (text != device)
      throw LimitError(fmt::format("GPU {} is {}, GPU 0 is {}: --gpus {}", other, text, device, other));
  }
  int driver = 0, runtime = 0;
  LH_CUDA_CHECK(cudaDriverGetVersion(&driver));
  LH_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  std::vector<std::string> lines = {
      fmt::format("device: {} x {}", gpus, device),
      fmt::format("driver: {} (CUDA {}), CUDA runtime {}", driver_release(), cuda_text(driver), cuda_text(runtime)),
      fmt::format("NCCL: {}", nccl_version()),
  };
  for (const std::string& setting : nccl_settings()) lines.push_back(setting);
  return lines;
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

}  // namespace longhaul
