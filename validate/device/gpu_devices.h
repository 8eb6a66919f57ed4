// The GPUs of this machine as devices of the executor. CUDA code is in a module of its own (longhaul-device.so), loaded
// when it is first asked for: this interface is all that the command knows of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "validate/device/device.h"
#include "validate/device/double_math.h"
#include "validate/device/process_job.h"
#include "validate/device/transport.h"

namespace longhaul {

// Which GPU every rank has, and with whom the others are.
struct TeamPlaces {
  std::vector<int> gpus;      // by rank; -1: a rank of another process of the job
  ProcessJob* job = nullptr;  // nullptr: this process has all ranks
  // Called once the devices are there and before ranks are joined, which waits for all processes. May throw.
  std::function<void()> ready;
};

// The GPUs of the ranks of this process, joined with all others by NCCL.
struct GpuTeam {
  std::vector<std::unique_ptr<Device>> devices;  // by rank; nullptr: of another process
  std::unique_ptr<Transport> transport;          // goes before the devices
};

class GpuDevices {
 public:
  virtual ~GpuDevices() = default;
  // GPUs that CUDA sees; 0, with the reason, where there is none.
  virtual int count(std::string& why) const = 0;
  // Their addresses on this host ("0000:1b:00.0"), the same from every process, in CUDA's order.
  virtual std::vector<std::string> addresses() const = 0;
  // Whether ranks on several GPUs can be joined: NCCL was built in.
  virtual bool can_join() const = 0;
  // All throw DeviceFault or what CUDA says. A team needs can_join().
  virtual std::unique_ptr<Device> make(int index, AttentionChoice attention) const = 0;
  // Double-precision work of references on that GPU; `threads` of the host beside it.
  virtual std::unique_ptr<DoubleMath> make_math(int index, int threads) const = 0;
  virtual GpuTeam make_team(const Schedule& schedule, const TeamPlaces& places) const = 0;
};

// What the module exports, by the name "longhaul_gpu_devices". It lives as long as the process.
using FindGpuDevices = const GpuDevices* (*)();

// Throws LimitError, one line with the remedy, if this build has no such module or it does not load.
const GpuDevices& gpu_devices();

}  // namespace longhaul
