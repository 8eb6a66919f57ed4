#include "validate/device/device_fault.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace longhaul {
namespace {

std::string message_of(FaultKind kind, const FaultPlace& at, const std::string& why) {
  std::string text = fmt::format("{}: ", to_string(kind));
  if (!at.op.empty()) text += at.op + ": ";
  if (at.op.empty() && at.rank >= 0) text += fmt::format("rank {}: ", at.rank);
  if (!at.kernel.empty()) text += fmt::format("kernel {}: ", at.kernel);
  return text + why;
}

}  // namespace

const char* to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKernel:
      return "kernel";
    case FaultKind::kNccl:
      return "nccl";
    case FaultKind::kHang:
      return "hang";
    case FaultKind::kMemory:
      return "memory";
    case FaultKind::kDeviceLost:
      return "device-lost";
    case FaultKind::kUnsupported:
      return "unsupported";
  }
  return "";
}

DeviceFault::DeviceFault(FaultKind kind, FaultPlace at, const std::string& why)
    : LimitError(message_of(kind, at, why)), kind_(kind), at_(std::move(at)), why_(why) {}

FaultKind fault_kind_of(std::string_view text) {
  // Names from CUDA 13's driver_types.h, whole words of what cudaGetErrorName gives.
  constexpr std::array kLost = {"cudaErrorNoDevice",
                                "cudaErrorDevicesUnavailable",
                                "cudaErrorInvalidDevice",
                                "cudaErrorECCUncorrectable",
                                "cudaErrorNvlinkUncorrectable",
                                "cudaErrorSystemNotReady",
                                "cudaErrorDeviceUninitialized",
                                "cudaErrorContextIsDestroyed",
                                "cudaErrorInsufficientDriver",
                                "cudaErrorContained",
                                "cudaErrorMpsConnectionFailed",
                                "cudaErrorUnknown"};
  if (text.find("cudaErrorMemoryAllocation") != std::string_view::npos) return FaultKind::kMemory;
  for (const char* name : kLost) {
    if (text.find(name) != std::string_view::npos) return FaultKind::kDeviceLost;
  }
  if (text.find("nccl") != std::string_view::npos) return FaultKind::kNccl;
  return FaultKind::kKernel;
}

}  // namespace longhaul
