// What stops a run on a device: a kernel or NCCL that fails, a hang, memory that does not fit, a device that is gone.
//
// A LimitError, so that the command prints one line and exits 3. Names the op (rank, position in its program, label,
// layer, chunk) and the kernel where they are known.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/core/error.h"
#include "sim/schedule/schedule.h"

namespace longhaul {

enum class FaultKind : std::uint8_t { kKernel, kNccl, kHang, kMemory, kDeviceLost, kUnsupported };
// "kernel", "nccl", "hang", "memory", "device-lost", "unsupported".
const char* to_string(FaultKind kind);

struct FaultPlace {
  std::int32_t rank = -1, position = -1;
  std::string op;      // `place` of agreement.h; empty: not known
  std::string kernel;  // empty: not known
};

class DeviceFault : public LimitError {
 public:
  DeviceFault(FaultKind kind, FaultPlace at, const std::string& why);
  FaultKind kind() const { return kind_; }
  const FaultPlace& at() const { return at_; }
  const std::string& why() const { return why_; }
  // True where work still runs on the device and cannot be stopped: its memory must not be freed (that would wait for
  // ever), and the process should leave without destructors once it has written its results.
  bool abandoned() const { return kind_ == FaultKind::kHang; }

 private:
  FaultKind kind_;
  FaultPlace at_;
  std::string why_;
};

// What a library's text says: kDeviceLost for CUDA's words for a device that is gone or faulty (cudaErrorNoDevice,
// cudaErrorDevicesUnavailable, ...ECCUncorrectable, ...), kMemory for cudaErrorMemoryAllocation, kNccl for texts of
// NCCL calls, else kKernel.
FaultKind fault_kind_of(std::string_view text);

}  // namespace longhaul
