// The GPUs of this machine through the CUDA executor; LONGHAUL_NCCL where NCCL was found.
#include <fmt/format.h>

#include "sim/cli/validate_gpu.h"
#include "sim/core/invariant.h"
#include "validate/device/cuda/cuda_device.h"
#ifdef LONGHAUL_NCCL
#include "validate/device/cuda/nccl_transport.h"
#endif

namespace longhaul {

std::optional<std::string> missing_for_gpu() {
  std::string why;
  if (cuda_device_count(why) > 0) return std::nullopt;
  return fmt::format(
      "no GPU can be used here ({}): run on a machine with one, or give a stored run with --record FILE, "
      "or --device host for a small emulation",
      why);
}

int visible_gpu_count() {
  std::string why;
  return cuda_device_count(why);
}

std::unique_ptr<Device> make_gpu(int index) { return std::make_unique<CudaDevice>(index); }

#ifdef LONGHAUL_NCCL
bool can_join_gpus() { return true; }

GpuTeam make_gpu_team(const Schedule& schedule) {
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
bool can_join_gpus() { return false; }

GpuTeam make_gpu_team(const Schedule& schedule) {
  LH_ASSERT(false, "a team of {} GPUs in a build without NCCL", schedule.ranks.size());
}
#endif

}  // namespace longhaul
