// What longhaul-device.so exports to the command (validate/device/gpu_devices.h). LONGHAUL_NCCL where NCCL was found.
#include <array>
#include <chrono>
#include <cstring>
#include <set>
#include <span>

#include "kernels/common/check.h"
#include "sim/core/invariant.h"
#include "validate/device/cuda/cuda_device.h"
#include "validate/device/cuda/cuda_math.h"
#include "validate/device/gpu_devices.h"
#ifdef LONGHAUL_NCCL
#include "validate/device/cuda/nccl_transport.h"
#endif

namespace longhaul {
namespace {

#ifdef LONGHAUL_NCCL
constexpr std::chrono::milliseconds kJoinPatience{120'000};  // as a step's watchdog (ExecutorOptions::timeout)

// The process of the group's first rank makes the id and sends it to those of the others. All walk the groups in one
// order, so that messages of two groups never meet crosswise.
ShareNcclId share_over(ProcessJob& job, int ranks_each) {
  return [&job, ranks_each](GroupId group, const std::vector<std::int32_t>& members) {
    std::set<int> processes;
    for (const std::int32_t rank : members) processes.insert(rank / ranks_each);
    const int owner = members.front() / ranks_each;
    ncclUniqueId id{};
    if (job.process() != owner) {
      const std::vector<std::byte> message = job.receive(owner);
      LH_ASSERT(message.size() == sizeof(id.internal), "an id of {} bytes", message.size());
      std::memcpy(id.internal, message.data(), message.size());
      return id;
    }
    id = within_one_process()(group, members);
    for (const int process : processes) {
      if (process != owner) job.send(process, std::as_bytes(std::span(id.internal)));
    }
    return id;
  };
}
#endif

class CudaDevices : public GpuDevices {
 public:
  int count(std::string& why) const override { return cuda_device_count(why); }
  std::vector<std::string> addresses() const override {
    std::string why;
    std::vector<std::string> addresses;
    for (int gpu = 0; gpu < count(why); ++gpu) {
      std::array<char, 32> address{};
      LH_CUDA_CHECK(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), gpu));
      addresses.emplace_back(address.data());
    }
    return addresses;
  }
  std::unique_ptr<Device> make(int index, AttentionChoice attention) const override {
    return std::make_unique<CudaDevice>(index, attention);
  }
  std::unique_ptr<DoubleMath> make_math(int index, int threads) const override {
    return make_cuda_math(index, threads);
  }
#ifdef LONGHAUL_NCCL
  bool can_join() const override { return true; }
  GpuTeam make_team(const Schedule& schedule, const TeamPlaces& places) const override {
    GpuTeam team;
    std::vector<CudaDevice*> devices;
    for (const int gpu : places.gpus) {
      auto device = gpu < 0 ? nullptr : std::make_unique<CudaDevice>(gpu);
      devices.push_back(device.get());
      team.devices.push_back(std::move(device));
    }
    if (places.ready) places.ready();
    const int each = static_cast<int>(places.gpus.size()) / (places.job == nullptr ? 1 : places.job->processes());
    team.transport = std::make_unique<NcclTransport>(
        schedule, devices, places.job == nullptr ? within_one_process() : share_over(*places.job, each),
        places.job == nullptr ? std::chrono::milliseconds(0) : kJoinPatience);
    return team;
  }
#else
  bool can_join() const override { return false; }
  GpuTeam make_team(const Schedule& schedule, const TeamPlaces&) const override {
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
