// What longhaul-device.so exports to the command (validate/device/gpu_devices.h). LONGHAUL_NCCL where NCCL was found.
#include "sim/core/invariant.h"
#include "validate/device/cuda/cuda_device.h"
#include "validate/device/gpu_devices.h"
#ifdef LONGHAUL_NCCL
#include "validate/device/cuda/nccl_transport.h"
#endif

namespace longhaul {
namespace {

class CudaDevices : public GpuDevices {
 public:
  int count(std::string& why) const override { return cuda_device_count(why); }
  std::unique_ptr<Device> make(int index) const override { return std::make_unique<CudaDevice>(index); }
#ifdef LONGHAUL_NCCL
  bool can_join() const override { return true; }
  GpuTeam make_team(const Schedule& schedule) const override {
    GpuTeam team;
    std::vector<CudaDevice*> devices;
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      auto device = std::make_unique<CudaDevice>(static_cast<int>(rank));
      devices.push_back(device.get());
      team.devices.push_back(std::move(device));
    }
    team.transport = std::make_unique<NcclTransport>(schedule, devices, within_one_process());
    return team;
  }
#else
  bool can_join() const override { return false; }
  GpuTeam make_team(const Schedule& schedule) const override {
    LH_ASSERT(false, "a team of {} GPUs in a build without NCCL", schedule.ranks.size());
  }
#endif
};

}  // namespace
}  // namespace longhaul

extern "C" __attribute__((visibility("default"))) const longhaul::GpuDevices* longhaul_gpu_devices() {
  static const longhaul::CudaDevices devices;
  return &devices;
}
